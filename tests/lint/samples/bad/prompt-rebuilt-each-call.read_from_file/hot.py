from pathlib import Path

from openai import OpenAI

client = OpenAI()


def answer(history, text):
    system = Path("prompts/system.md").read_text()
    messages = [{"role": "system", "content": system}, *history, {"role": "user", "content": text}]
    return client.chat.completions.create(model="gpt-4o", messages=messages)
