import random
import time

from openai import OpenAI, RateLimitError

INSTRUCTIONS = """You sell plants in an online nursery.
Ask where the plant will stand, how much light there is and who waters it.
Recommend at most three plants, with their Latin names, and say how large they get.
Never recommend a poisonous plant to somebody with small children or cats.
Give care advice in short sentences and without exclamation marks.
Examples of good advice:
{examples}
Stay friendly, also when somebody asks for a plant that we do not sell."""
ADVICE = [f"- Advice {n}: water once a week, less in winter." for n in range(40)]
SHOWN = random.Random(7).sample(ADVICE, 5)
SYSTEM = INSTRUCTIONS.format(examples="\n".join(SHOWN))


def chat(history, text, attempts=4):
    messages = [{"role": "system", "content": SYSTEM}, *history, {"role": "user", "content": text}]
    for attempt in range(attempts):
        try:
            return OpenAI().chat.completions.create(model="gpt-4o", messages=messages)
        except RateLimitError:
            time.sleep(2**attempt + random.random())
    raise RuntimeError("the service does not answer")
