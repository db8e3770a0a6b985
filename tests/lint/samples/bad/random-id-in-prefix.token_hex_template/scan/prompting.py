import secrets
from string import Template

import anthropic

SCAN = Template("""Trace: $trace
You look for personal data in documents before they are published.
Personal data are names of private people, addresses, telephone numbers, dates of birth,
health records, account numbers, number plates and photographs of faces.
Names of office holders in their office are not personal data.
List each place with its paragraph number and the kind of data.
If there is none, answer with the single word CLEAN and nothing else.
Do not repeat the data themselves in your answer, not even in part.""")


def scan(document: str):
    system = SCAN.substitute(trace=secrets.token_hex(8))
    return anthropic.Anthropic().messages.create(
        model="claude-haiku-4-5",
        max_tokens=500,
        system=system,
        messages=[{"role": "user", "content": document}],
    )
