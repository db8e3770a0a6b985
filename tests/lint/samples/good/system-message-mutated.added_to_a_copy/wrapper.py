import json

from openai import OpenAI


def ask(schema, kwargs):
    """Adds the schema of the answer to the system message of a copy."""
    wanted = f"""Answer in JSON that matches this schema, and return the instance and not the schema itself:
{json.dumps(schema, indent=2)}"""
    messages = copy_messages(kwargs.get("messages", []))
    if messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": wanted})
    else:
        messages[0]["content"] += f"\n\n{wanted}"
    return OpenAI().chat.completions.create(model="gpt-4.1", messages=messages)
