from openai import APIError, OpenAI

client = OpenAI()
MAIN, SPARE = "gpt-4.1", "gpt-4.1-mini"


def respond(messages, question):
    messages.append({"role": "user", "content": question})
    try:
        reply = client.chat.completions.create(model=MAIN, messages=messages)
    except APIError:
        reply = client.chat.completions.create(model=SPARE, messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
