import random

from langchain_openai import ChatOpenAI

POOL = ["7 + 5 = 12", "9 + 8 = 17", "6 + 7 = 13", "8 + 4 = 12"]
llm = ChatOpenAI(model="gpt-4o-mini")


def solve(task):
    pool = list(POOL)
    random.shuffle(pool)
    shots = "\n".join(pool)
    return llm.invoke(
        f"Examples:\n{shots}\n\nSolve the task below as the examples do. Write the task, an equals "
        "sign and the result, nothing else. If the task has several steps, write one line for each "
        "of them. Use no words. Negative results get a minus sign directly before the digits. "
        f"Fractions are written with a slash.\n\nTask: {task}"
    )
