import json

from openai import OpenAI

client = OpenAI()


def step(messages, tools, execute):
    answer = client.chat.completions.create(
        model="gpt-4.1", messages=messages, tools=tools
    ).choices[0].message
    messages.append(answer)
    for call in answer.tool_calls or []:
        result = execute(call.function.name, json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    return messages
