from anthropic import Anthropic

api = Anthropic()


def step(messages, tools, results):
    for block in results:
        if block.get("type") == "tool_result":
            block["content"] = block["content"][:4000]
    messages.append({"role": "user", "content": results})
    return api.messages.create(model="claude-sonnet-4-5", max_tokens=900, tools=tools, messages=messages)
