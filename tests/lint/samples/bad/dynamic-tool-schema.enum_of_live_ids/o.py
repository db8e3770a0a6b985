from openai import OpenAI

client = OpenAI()


def turn(db, messages):
    tools = [
        {
            "type": "function",
            "function": {
                "name": "open_ticket",
                "description": "Opens a ticket",
                "parameters": {
                    "type": "object",
                    "properties": {"id": {"type": "string", "enum": [t.id for t in db.open_tickets()]}},
                },
            },
        }
    ]
    return client.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
