import openai


class Bot:
    def __init__(self, system):
        self.messages = [{"role": "system", "content": system}]

    def say(self, text):
        self.messages.append({"role": "user", "content": text})
        while len(self.messages) > 20:
            self.messages.pop(1)
        reply = openai.chat.completions.create(model="gpt-4o", messages=self.messages)
        self.messages.append(reply.choices[0].message)
        return reply.choices[0].message.content
