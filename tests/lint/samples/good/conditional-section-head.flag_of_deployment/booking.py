import os

from openai import OpenAI

SEAT_MAP = os.environ.get("SEAT_MAP") == "1"
EXTRA = "You may offer the new seat map.\n" if SEAT_MAP else ""
SYSTEM = (
    EXTRA
    + """You are the booking assistant of a theatre with four hundred seats.
Find out how many people come, on which evening and how much they want to spend.
Offer the best seats that are together before you offer better ones that are not.
Seats in the first two rows have a restricted view, say so before you sell them.
Children under six are not admitted to evening performances.
Tickets can be returned until noon of the day before."""
)


def book(message):
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": message}],
    )
