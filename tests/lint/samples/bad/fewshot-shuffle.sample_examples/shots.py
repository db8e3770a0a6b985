import random

from openai import OpenAI

EXAMPLES = [
    "Review: The soup was cold. -> negative",
    "Review: We will come again! -> positive",
    "Review: Open from nine to five. -> neutral",
    "Review: Two hours for a salad. -> negative",
    "Review: The waiter sang for us. -> positive",
]
TASK = """Classify reviews of restaurants as positive, negative or neutral.
Irony counts as what is meant. A review with praise and blame gets the class of its last
sentence. Facts without judgement are neutral. Answer with the class alone, in lower case,
without a full stop, and never explain yourself even when you are asked to."""


def classify(review):
    shots = "\n".join(random.sample(EXAMPLES, 3))
    prompt = f"{shots}\n\n{TASK}"
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": prompt}, {"role": "user", "content": review}],
    )
