from datetime import datetime

from litellm import acompletion

SYSTEM = """Generated {stamp}.
You check recipes for mistakes. Look at amounts, temperatures, times and the order of steps.
Say which ingredient is never used and which step needs something that is not listed.
Convert cups to grams. Do not change the taste of a dish and do not judge it.
List mistakes by step. If there are none, write that the recipe can be printed."""


async def check(recipe):
    values = {"stamp": datetime.now().isoformat()}
    return await acompletion(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": SYSTEM.format_map(values)},
            {"role": "user", "content": recipe},
        ],
    )
