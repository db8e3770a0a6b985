import json
import uuid
from openai import OpenAI


def turn(messages):
    r = OpenAI().chat.completions.create(model="gpt-4o", messages=messages)
    m = r.choices[0].message
    calls = []
    for c in m.tool_calls:
        args = json.loads(c.function.arguments)
        calls.append({"id": str(uuid.uuid4()), "type": "function", "function": {"name": c.function.name, "arguments": json.dumps(args)}})
    messages.append({"role": "assistant", "content": m.content, "tool_calls": calls})
    return messages
