from openai import OpenAI


def turn(messages, facts):
    messages.insert(1, {"role": "system", "content": "Plots that are free: " + facts()})
    return OpenAI().chat.completions.create(model="gpt-4.1", messages=messages)
