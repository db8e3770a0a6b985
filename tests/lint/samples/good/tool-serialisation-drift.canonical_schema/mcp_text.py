import json

from openai import OpenAI

client = OpenAI()
MANNERS = """Answer with one JSON object that names the tool and its arguments.
Use a tool only when you cannot answer without it, and one at a time.
Dates are written year, month, day. Amounts have two digits after the point.
If a tool fails twice, tell the user and stop. Never show the user a JSON object."""
SEARCH = {"name": "search", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}
SCHEMAS = json.dumps(SEARCH, sort_keys=True)


def respond(messages):
    system = f"Tools:\n{SCHEMAS}\n\n{MANNERS}"
    return client.chat.completions.create(
        model="qwen2.5-7b", messages=[{"role": "system", "content": system}, *messages]
    )
