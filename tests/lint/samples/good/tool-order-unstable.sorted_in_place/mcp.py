import anthropic


async def loop(sessions, messages):
    tools = []
    for s in sessions:
        result = await s.list_tools()
        for t in result.tools:
            tools.append({"name": t.name, "description": t.description, "input_schema": t.inputSchema})
    tools.sort(key=lambda t: t["name"])
    return await anthropic.AsyncAnthropic().messages.create(
        model="claude-sonnet-4-5", max_tokens=10, system="""You are the support assistant of a hardware shop. Answer politely and in full sentences.
Never promise a delivery date that is not in the order record. Quote prices with tax.
If a customer wants a refund, ask for the order number and the reason before anything else.
Escalate to a human when the customer is angry, mentions a lawyer, or asks three times for the same thing.
Do not discuss competitors. Do not invent product features. Keep answers under 120 words.
Use bullet points for steps, and plain prose for everything else. Close with an offer to help further.""", messages=messages, tools=tools
    )
