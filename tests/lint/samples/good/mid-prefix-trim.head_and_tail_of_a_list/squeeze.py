import logging

from openai import OpenAI

client = OpenAI()


def converse(messages, text):
    messages.append({"role": "user", "content": text})
    logging.debug("conversation %s", messages[:2] + messages[-2:])
    reply = client.chat.completions.create(model="gpt-4o", messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
