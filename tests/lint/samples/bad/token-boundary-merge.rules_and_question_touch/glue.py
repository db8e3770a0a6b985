from openai import OpenAI

client = OpenAI()
RULES = """Complete the sentence of a beginner who learns English.
Prefer short words to long ones and the active voice to the passive. Names stay as they are.
If the sentence is complete already, put a full stop behind it. Numbers are written as words.
Use words of the first thousand only. Do not correct what the beginner has written.
Write one sentence and stop. Do not add an explanation, a translation or a greeting.
The beginner writes: The"""


def complete(question):
    prompt = f"{RULES}{question}"
    return client.completions.create(model="gpt-3.5-turbo-instruct", prompt=prompt)
