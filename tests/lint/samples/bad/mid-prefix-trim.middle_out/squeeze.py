from openai import OpenAI

client = OpenAI()


def converse(messages, text):
    messages.append({"role": "user", "content": text})
    kept = messages[:4] + messages[-12:]
    reply = client.chat.completions.create(model="gpt-4o", messages=kept)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
