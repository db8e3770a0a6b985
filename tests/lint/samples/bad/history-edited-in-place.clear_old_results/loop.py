from openai import OpenAI

client = OpenAI()


def run(messages, tools, execute):
    while True:
        for message in messages[:-6]:
            if message["role"] == "tool":
                message["content"] = "(old output removed)"
        reply = client.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
        answer = reply.choices[0].message
        messages.append(answer.model_dump())
        if not answer.tool_calls:
            return answer.content
        for call in answer.tool_calls:
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": execute(call.function)}
            )
