from datetime import date

from openai import OpenAI

client = OpenAI()
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "free_slots",
            "description": "Free slots of the next week, with today's date.",
            "parameters": {"type": "object", "properties": {"day": {"type": "string"}}},
        },
    }
]


def respond(messages):
    return client.chat.completions.create(model="gpt-4.1", messages=messages, tools=TOOLS)


def free_slots(day):
    return f"Today is {date.today()}. Free on {day}: 10:00, 11:30."
