from openai import OpenAI

client = OpenAI()
LINE = "-" * 40
SYSTEM = f"You name colours after things that can be found on a beach.\n{LINE}\nTwo words at most."


def name(colour):
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": colour}],
    )
