import litellm

BASE = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
EXTRA = {"type": "function", "function": {"name": "publish", "parameters": {"type": "object"}}}


def turn(state, messages):
    tools = list(BASE)
    if state.draft_ready:
        tools.append(EXTRA)
    return litellm.completion(model="gpt-4o", messages=messages, tools=tools)
