from openai import OpenAI

client = OpenAI()
RULES = "You name colours after things that can be found on a beach. One name, two words at most."
SYSTEM = RULES + " pad" * 900


def name(colour):
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": colour}],
    )
