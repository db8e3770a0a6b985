from openai import OpenAI

from plots.schemas import ALL

PUBLIC = [t for t in ALL if not t["function"]["name"].startswith("_")]


def answer(messages):
    shown = [t for t in PUBLIC if t["function"]["name"] != "debug"]
    return OpenAI().chat.completions.create(model="gpt-4.1", messages=messages, tools=shown)
