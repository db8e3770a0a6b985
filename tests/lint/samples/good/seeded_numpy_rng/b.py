import numpy as np
from openai import OpenAI

POOL = [f"Example {n}: {n} apples and {n + 1} pears are {2 * n + 1} pieces of fruit." for n in range(50)]
rng = np.random.default_rng(20240501)
CHOSEN = "\n".join(POOL[i] for i in sorted(rng.choice(len(POOL), size=5, replace=False)))
SYSTEM = f"""You solve word problems of the second grade. Write the sum, then the answer.
{CHOSEN}
Use numbers only up to one hundred. Explain nothing unless the child asks why."""


def solve(problem):
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": problem}],
    )
