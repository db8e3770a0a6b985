from openai import OpenAI

client = OpenAI()
RULES = """Answer questions about the collective agreement from the excerpts.
Name the section of each excerpt that you use. Say when two excerpts disagree.
Amounts are before taxes. Working hours are those of full-time staff unless the excerpt says
otherwise. Do not give legal advice and do not compare with other agreements."""


def answer(index, question):
    hits = sorted(index.search(question, k=8), key=lambda hit: hit.id)
    excerpts = "\n\n".join(hit.text for hit in hits)
    prompt = f"{RULES}\n\n{excerpts}\n\nQuestion: {question}"
    return client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": prompt}]
    )
