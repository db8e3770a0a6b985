import json

from anthropic import Anthropic

ORDERS = """You look after the heating of a house.
Below eighteen degrees in a used room is too cold, above twenty-three is too warm.
Windows that are open switch off the radiator of their room and no other.
At night every bedroom goes down by two degrees, and up again half an hour before the alarm.
Explain each change in one sentence that a child understands.
Never change the boiler itself, and never go above sixty degrees in the circuit."""


def steer(sensors: dict, wish: str):
    system = "Readings: " + json.dumps(sensors) + "\n" + ORDERS
    return Anthropic().messages.create(
        model="claude-sonnet-4-5",
        max_tokens=400,
        system=system,
        messages=[{"role": "user", "content": wish}],
    )
