from datetime import date

from openai import OpenAI

client = OpenAI()


def respond(messages):
    tools = [
        {
            "type": "function",
            "function": {
                "name": "free_slots",
                "description": f"Free slots of the next week. Today is {date.today()}.",
                "parameters": {"type": "object", "properties": {"day": {"type": "string"}}},
            },
        }
    ]
    return client.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
