from openai import OpenAI

client = OpenAI()


def turn(messages, text, todo):
    messages.append({"role": "user", "content": text})
    messages.insert(1, {"role": "system", "content": f"Still to do: {todo}"})
    reply = client.chat.completions.create(model="gpt-4o", messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
