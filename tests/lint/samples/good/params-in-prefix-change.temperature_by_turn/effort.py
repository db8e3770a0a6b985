from anthropic import Anthropic

client = Anthropic()
ON = {"type": "enabled", "budget_tokens": 4000}


def respond(messages, question):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=6000 if "why" in question.lower() else 4500,
        thinking=ON,
        system="You explain how things in the kitchen work, with experiments for children.",
        messages=[*messages, {"role": "user", "content": question}],
    )
