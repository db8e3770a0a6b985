from openai import OpenAI

client = OpenAI()


def turn(messages, text, todo, log):
    log.insert(1, text)
    messages.append({"role": "user", "content": f"{text}\n\nStill to do: {todo}"})
    reply = client.chat.completions.create(model="gpt-4o", messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
