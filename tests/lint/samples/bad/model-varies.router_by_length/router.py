from openai import OpenAI

client = OpenAI()


def respond(messages, question):
    messages.append({"role": "user", "content": question})
    model = "gpt-4.1-mini" if len(question) < 120 else "gpt-4.1"
    reply = client.chat.completions.create(model=model, messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
