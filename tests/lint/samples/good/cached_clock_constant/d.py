import functools
import subprocess

from anthropic import Anthropic


@functools.cache
def build():
    return subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()


RULES = """You explain error messages of a compiler to beginners. Say what the line means, what
the compiler expected, and show the smallest change that helps. Never rewrite the program.
If there are several errors, explain the first one only, since others often follow from it."""


def explain(error):
    return Anthropic().messages.create(
        model="claude-haiku-4-5",
        max_tokens=300,
        system=f"Build {build()}.\n{RULES}",
        messages=[{"role": "user", "content": error}],
    )
