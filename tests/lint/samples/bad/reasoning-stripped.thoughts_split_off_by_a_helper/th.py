from openai import OpenAI

client = OpenAI(base_url="http://localhost:30000/v1", api_key="-")


def strip_thinking(text):
    return text.split("</think>")[-1].strip()


def step(messages):
    r = client.chat.completions.create(model="deepseek-r1", messages=messages)
    messages.append({"role": "assistant", "content": strip_thinking(r.choices[0].message.content)})
    return messages
