import random

from openai import OpenAI

EXAMPLES = [
    "Review: The soup was cold. -> negative",
    "Review: We will come again! -> positive",
    "Review: Open from nine to five. -> neutral",
]
TASK = """Classify reviews of restaurants as positive, negative or neutral.
Irony counts as what is meant. A review with praise and blame gets the class of its last
sentence. Facts without judgement are neutral. Answer with the class alone, in lower case."""
SYSTEM = TASK + "\n\n" + "\n".join(EXAMPLES[:3])


def classify(review):
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": review}],
    )


def evaluate(reviews):
    random.shuffle(reviews)
    return [classify(review) for review in reviews[:50]]
