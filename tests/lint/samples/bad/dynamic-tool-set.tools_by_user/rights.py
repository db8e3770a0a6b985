from anthropic import Anthropic

from office.tools import TOOLS

client = Anthropic()


def respond(user, messages):
    allowed = [tool for tool in TOOLS if user.can(tool["name"])]
    return client.messages.create(
        model="claude-sonnet-4-5", max_tokens=800, tools=allowed, messages=messages
    )
