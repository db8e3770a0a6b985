import re

from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")


def ask(messages, text):
    messages.append({"role": "user", "content": text})
    reply = client.chat.completions.create(model="qwen3-8b", messages=messages)
    content = reply.choices[0].message.content
    messages.append({"role": "assistant", "content": content})
    return re.sub(r"<think>.*?</think>", "", content, flags=re.S).strip()
