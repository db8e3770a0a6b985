import anthropic


class Calculator:
    name = "calc"

    def run(self, x):
        return eval(x)


class Search:
    name = "search"

    def run(self, x):
        return x


TOOLS = [Calculator(), Search()]
RULES = """You are the support assistant of a hardware shop. Answer politely and in full sentences.
Never promise a delivery date that is not in the order record. Quote prices with tax.
If a customer wants a refund, ask for the order number and the reason before anything else.
Escalate to a human when the customer is angry, mentions a lawyer, or asks three times for the same thing.
Do not discuss competitors. Do not invent product features. Keep answers under 120 words.
Use bullet points for steps, and plain prose for everything else. Close with an offer to help further."""


def ask(q):
    system = "Tools: " + str(TOOLS) + "\n" + RULES
    return anthropic.Anthropic().messages.create(
        model="claude-sonnet-4-5", max_tokens=100, system=system, messages=[{"role": "user", "content": q}]
    )
