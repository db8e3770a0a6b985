from anthropic import Anthropic

client = Anthropic()
RULES = """You research companies for a foundation. Use the tools to read registers and reports.
Write down the source of every fact. Facts without a source are left out.
Look for owners, boards, turnover, staff and lawsuits, in this order.
Stop when two further searches have found nothing new. Never contact the company."""


def research(messages, budget, tools, execute):
    used = 0
    while used < budget:
        left = budget - used
        reply = client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=1000,
            system=f"Tokens left: {left}\n{RULES}",
            tools=tools,
            messages=messages,
        )
        used += reply.usage.input_tokens
        messages.append({"role": "assistant", "content": reply.content})
        messages.append({"role": "user", "content": execute(reply)})
    return messages
