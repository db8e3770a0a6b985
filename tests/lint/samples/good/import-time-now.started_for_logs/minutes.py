import logging

from anthropic import Anthropic

from prompts import STARTED, SYSTEM_PROMPT


def write(transcript: str):
    logging.info("running since %s", STARTED.isoformat())
    return Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=2000,
        system=SYSTEM_PROMPT,
        messages=[{"role": "user", "content": transcript}],
    )
