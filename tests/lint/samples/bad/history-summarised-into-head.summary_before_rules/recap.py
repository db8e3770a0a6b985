from openai import OpenAI

client = OpenAI()
RULES = """You lead a role play in a lighthouse. Describe what can be seen, heard and smelled.
Let the players decide, never decide for them. Roll dice where something can fail.
A storm comes on the third evening, whatever the players do. Nobody dies before that.
The keeper knows more than he says; he lies about the year in which the lamp went out.
End each scene with a question to one of the players by name."""


def play(summary, recent, text):
    system = f"What happened so far: {summary}\n\n{RULES}"
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": system},
            *recent,
            {"role": "user", "content": text},
        ],
    )
