import os

from anthropic import Anthropic

client = Anthropic()
ALL = [
    {"name": "read_calendar", "description": "Reads a day.", "input_schema": {"type": "object"}},
    {"name": "book_room", "description": "Books a room.", "input_schema": {"type": "object"}},
    {"name": "pay_invoice", "description": "Pays an invoice.", "input_schema": {"type": "object"}},
]
PAYMENTS = os.environ.get("PAYMENTS") == "on"
TOOLS = [tool for tool in ALL if PAYMENTS or tool["name"] != "pay_invoice"]


def respond(messages):
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=800, tools=TOOLS, messages=messages
    )
