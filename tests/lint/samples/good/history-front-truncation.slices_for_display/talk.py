from openai import OpenAI

client = OpenAI()
SYSTEM = {
    "role": "system",
    "content": "You practise Italian with adults who travel a lot. Speak Italian, slowly and in the "
    "present tense; correct one mistake at a time and praise what went well.",
}
history = []


def talk(text):
    history.append({"role": "user", "content": text})
    reply = client.chat.completions.create(model="gpt-4o", messages=[SYSTEM] + history)
    answer = reply.choices[0].message.content
    history.append({"role": "assistant", "content": answer})
    return answer


def show():
    for message in history[-10:]:
        print(message["role"], message["content"])
