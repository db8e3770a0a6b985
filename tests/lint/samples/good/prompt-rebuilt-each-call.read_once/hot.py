from pathlib import Path

from openai import OpenAI

client = OpenAI()
SYSTEM = Path("prompts/system.md").read_text()


def answer(history, text):
    messages = [{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": text}]
    return client.chat.completions.create(model="gpt-4o", messages=messages)
