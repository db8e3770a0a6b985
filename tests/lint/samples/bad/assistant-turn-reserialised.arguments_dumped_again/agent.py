import json

from openai import OpenAI

client = OpenAI()


def step(messages, tools):
    answer = client.chat.completions.create(
        model="gpt-4.1", messages=messages, tools=tools
    ).choices[0].message
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.function.name,
                "arguments": json.dumps(json.loads(call.function.arguments)),
            },
        }
        for call in answer.tool_calls or []
    ]
    messages.append({"role": "assistant", "content": answer.content, "tool_calls": calls})
    return messages
