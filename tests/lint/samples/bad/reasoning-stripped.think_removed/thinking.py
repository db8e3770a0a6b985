import re

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def ask(messages, text):
    messages.append({"role": "user", "content": text})
    for message in messages:
        if message["role"] == "assistant":
            message["content"] = re.sub(r"<think>.*?</think>", "", message["content"], flags=re.S)
    reply = client.chat.completions.create(model="qwen3-8b", messages=messages)
    messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
