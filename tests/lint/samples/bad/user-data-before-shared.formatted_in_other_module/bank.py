import texts
from anthropic import Anthropic


def talk(user, text):
    system = texts.WELCOME_SYSTEM.format(user_name=user.name, city=user.city)
    return Anthropic().messages.create(
        model="claude-haiku-4-5",
        max_tokens=400,
        system=system,
        messages=[{"role": "user", "content": text}],
    )
