from datetime import datetime, timezone

from openai import OpenAI

from company.texts import RULES

client = OpenAI()


def ask(q):
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": f"[{datetime.now(tz=timezone.utc)}] {RULES}"},
            {"role": "user", "content": q},
        ],
    )
