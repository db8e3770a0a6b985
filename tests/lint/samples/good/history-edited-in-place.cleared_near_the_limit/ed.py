from openai import OpenAI


def count(messages):
    return sum(len(m["content"]) for m in messages) // 4


def ask(messages):
    if count(messages) > 100_000:
        for m in messages[:-20]:
            if m["role"] == "tool":
                m["content"] = "[cleared]"
    return OpenAI().chat.completions.create(model="gpt-4o", messages=messages)
