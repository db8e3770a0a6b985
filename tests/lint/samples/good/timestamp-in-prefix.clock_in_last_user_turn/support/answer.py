"""Answers for the help desk of a parcel service."""

from datetime import datetime

from openai import OpenAI

client = OpenAI()

RULES = """You work at the help desk of a parcel service.
Answer only questions about shipments, returns, customs and invoices.
Quote the article of the terms that an answer rests on.
Never promise a delivery date that the tracking page does not show.
If a parcel is lost, open a case and tell the customer its number.
Speak plainly, in at most six sentences, and close with one next step."""


def answer(question: str) -> str:
    reply = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": RULES},
            {"role": "user", "content": f"{question}\n\n(asked at {datetime.now().isoformat()})"},
        ],
    )
    return reply.choices[0].message.content or ""
