import os

from openai import OpenAI

client = OpenAI(api_key=os.environ["KEY"])
SHARED = open("prompts/shared.md").read()


def turn(user, history, text):
    messages = [
        {"role": "system", "content": f"User: {user.name} <{user.email}>\nLanguage: {user.locale}\n\n{SHARED}"},
        *history,
        {"role": "user", "content": text},
    ]
    return client.chat.completions.create(model="gpt-4o", messages=messages)
