from anthropic import AsyncAnthropic

client = AsyncAnthropic()


async def turn(sessions, messages):
    tools = []
    for session in set(sessions):
        listed = await session.list_tools()
        tools.extend(
            {"name": t.name, "description": t.description, "input_schema": t.inputSchema}
            for t in listed.tools
        )
    return await client.messages.create(
        model="claude-sonnet-4-5", max_tokens=1000, tools=tools, messages=messages
    )
