import datetime as dt

import litellm

HOUSE_STYLE = """
You are the concierge of a small hotel by the sea.
Guests write to you about rooms, breakfast, parking, tides and bicycles.
Breakfast is from seven to ten. The garage has nine places, first come first served.
Bicycles are free for guests, helmets lie in the cellar, children's seats must be ordered.
Recommend only restaurants on the list that the front desk keeps, and never by price.
Keep every reply below eighty words and sign as "Your front desk".
"""


async def reply(text):
    preamble = "Server clock: " + dt.datetime.utcnow().isoformat() + "\n"
    messages = [
        {"role": "system", "content": preamble + HOUSE_STYLE},
        {"role": "user", "content": text},
    ]
    return await litellm.acompletion(model="gpt-4o", messages=messages)
