from openai import OpenAI


class Llm:
    def __init__(self):
        self._client = OpenAI()

    def ask(self, system, text):
        reply = self._client.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        )
        return reply.choices[0].message.content
