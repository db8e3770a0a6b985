import json

from openai import OpenAI

client = OpenAI()
MANNERS = """Answer with one JSON object that names the tool and its arguments.
Use a tool only when you cannot answer without it, and one at a time.
Dates are written year, month, day. Amounts have two digits after the point.
If a tool fails twice, tell the user and stop. Never show the user a JSON object."""


async def respond(session, messages):
    listed = await session.list_tools()
    schemas = "\n".join(json.dumps(tool.inputSchema) for tool in listed.tools)
    system = f"Tools:\n{schemas}\n\n{MANNERS}"
    return client.chat.completions.create(
        model="qwen2.5-7b", messages=[{"role": "system", "content": system}, *messages]
    )
