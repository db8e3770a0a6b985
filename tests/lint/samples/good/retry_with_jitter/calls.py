import random
import time

import anthropic

client = anthropic.Anthropic()
SYSTEM = """You check addresses. Write the address in four lines: name, street, code and town,
country. Complete what is missing only if there is one possibility. Say "unclear" otherwise.
Do not translate names of streets. Write countries in English and in capitals."""


def check(address, attempts=5):
    started = time.monotonic()
    for attempt in range(attempts):
        try:
            return client.messages.create(
                model="claude-haiku-4-5",
                max_tokens=200,
                system=SYSTEM,
                messages=[{"role": "user", "content": address}],
            )
        except anthropic.RateLimitError:
            time.sleep(min(30, 2**attempt) * random.uniform(0.5, 1.5))
    raise TimeoutError(f"no answer after {time.monotonic() - started:.1f} s and {attempts} attempts")
