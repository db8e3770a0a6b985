from openai import OpenAI

client = OpenAI()
SYSTEM = "You help people to fill in a form for a building permit, one field at a time."


def chat(history, tools):
    return client.chat.completions.create(
        model="gpt-4.1",
        messages=[{"role": "system", "content": SYSTEM}, *history],
        tools=tools,
    )


def summarise(history, tools):
    wish = {"role": "user", "content": "Summarise the conversation in ten lines."}
    return client.chat.completions.create(
        model="gpt-4.1",
        messages=[{"role": "system", "content": SYSTEM}, *history, wish],
        tools=tools,
    )
