from openai import OpenAI
from tools import TOOLS


def turn(user, messages):
    allowed = [t for t in TOOLS if user.can(t["function"]["name"])]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": t["function"]["name"]} for t in allowed]}
    return OpenAI().chat.completions.create(model="gpt-4o", messages=messages, tools=TOOLS, tool_choice=choice)
