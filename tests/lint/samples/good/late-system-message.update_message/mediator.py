from openai import OpenAI

RULES = """You mediate between two neighbours who quarrel about a hedge.
Let both of them finish. Repeat what each has said before you comment on it.
Name what they agree about, however small it is.
Never say who is right, and never quote the law unless both ask for it.
Propose a compromise only after each of them has proposed one."""


def mediate(history, text, closing):
    messages = [{"role": "system", "content": RULES}, *history, {"role": "user", "content": text}]
    if closing:
        messages.append({"role": "system", "content": "The time is up: close the conversation."})
    return OpenAI().chat.completions.create(model="gpt-4o", messages=messages)
