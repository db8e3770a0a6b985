import time

import anthropic

INSTRUCTIONS = "Check each line of the delivery note against the order. " * 60


def check(note):
    now = time.ctime()
    prompt = f"""{now}
{INSTRUCTIONS}

{note}"""
    return anthropic.Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=512,
        messages=[{"role": "user", "content": prompt}],
    )
