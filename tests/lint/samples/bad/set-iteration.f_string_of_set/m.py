from openai import OpenAI

KINDS = {"bug", "feature", "question", "duplicate"}


def label(issue):
    system = f"""Choose the label of an issue from {KINDS}. Prefer bug to feature when something
used to work. A question without a reproduction is a question even when it says bug.
Duplicates need the number of the other issue. Write the label in lower case and nothing else.
If the issue is empty or written in a language that you do not know, choose question."""
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": issue}],
    )
