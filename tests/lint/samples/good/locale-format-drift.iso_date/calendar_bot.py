from datetime import date

from openai import OpenAI

HABITS = """You remind an allotment gardener of what has to be done this week.
Sow nothing outside before the ice saints. Water in the evening, never at noon.
Prune stone fruit after the harvest and pome fruit in late winter.
Name at most four tasks, the most urgent first, and say how long each of them takes.
If it has rained in the last two days, leave out watering."""
OPENED = date(2024, 3, 15)


def remind(question):
    system = f"The garden was opened on {OPENED.isoformat()}.\n{HABITS}"
    return OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
    )
