import subprocess

from anthropic import Anthropic

RULES = """You help with a code base. Read before you write. Keep changes small and explain them.
Follow the style of the file that you change. Run the tests that belong to it.
Never commit, never push, never touch files that are generated.
If a change needs a new dependency, ask first. If you are unsure, say so."""


def ask(messages):
    status = subprocess.run(["git", "status", "--short"], capture_output=True, text=True).stdout
    return Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=1000,
        system=f"Status:\n{status}\n\n{RULES}",
        messages=messages,
    )
