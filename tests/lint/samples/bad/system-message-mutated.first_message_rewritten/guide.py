from litellm import completion

BASE = "You guide a blind walker through a city. Name kerbs, stairs, crossings and doors early."


def walk(next_position, speak):
    messages = [{"role": "system", "content": BASE}]
    while True:
        position = next_position()
        messages[0]["content"] = f"{BASE}\nPosition: {position}"
        reply = completion(model="gpt-4o", messages=messages)
        text = reply.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": speak(text)})
