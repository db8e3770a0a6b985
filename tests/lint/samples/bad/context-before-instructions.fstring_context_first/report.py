from openai import OpenAI

client = OpenAI()


def write_report(context: str, question: str) -> str:
    prompt = f"""Information:
{context}

Using the information above, answer the following query: {question}

The report has an introduction, a part for each aspect of the query, and a conclusion.
It is written in Markdown with headings of the second level and without emojis.
Every number has a source, given as a link directly behind the sentence.
Write at least nine hundred words. Do not write a list of sources at the end.
State your own view in the last paragraph and say that it is one.
Prefer sources of the last two years, and public bodies over newspapers."""
    reply = client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": prompt}]
    )
    return reply.choices[0].message.content
