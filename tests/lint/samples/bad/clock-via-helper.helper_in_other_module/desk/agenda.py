from openai import OpenAI

from desk.build import build_system


def agenda(topics: str):
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": build_system()},
            {"role": "user", "content": topics},
        ],
    )
