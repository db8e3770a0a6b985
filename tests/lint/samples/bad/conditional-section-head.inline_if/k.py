from openai import OpenAI

RULES = """You answer questions about streaming at home. Ask for the device first.
Name menus exactly as they are written on the screen. One change at a time.
Never ask people to reset a device before everything else has been tried.
Films that are not in the catalogue cannot be ordered. Do not name other services."""


def reply(text, premium):
    system = ("The customer has the premium plan.\n" if premium else "") + RULES
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
    )
