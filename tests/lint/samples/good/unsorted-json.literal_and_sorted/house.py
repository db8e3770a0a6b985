import json

from anthropic import Anthropic

LIMITS = {"cold": 18, "warm": 23, "circuit": 60}
ORDERS = f"""You look after the heating of a house. Limits: {json.dumps(LIMITS)}
Windows that are open switch off the radiator of their room and no other.
At night every bedroom goes down by two degrees, and up again half an hour before the alarm.
Explain each change in one sentence that a child understands.
Never change the boiler itself, and never go above the limit of the circuit."""


def steer(sensors: dict, wish: str):
    text = f"Readings: {json.dumps(sensors, sort_keys=True)}\n{wish}"
    return Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=400,
        system=ORDERS,
        messages=[{"role": "user", "content": text}],
    )
