from litellm import completion

BASE = "You guide a blind walker through a city. Name kerbs, stairs, crossings and doors early."


def walk(city, next_position, speak):
    messages = [{"role": "system", "content": ""}]
    messages[0]["content"] = f"{BASE}\nThe city is {city}."
    while True:
        messages.append({"role": "user", "content": f"Position: {next_position()}"})
        reply = completion(model="gpt-4o", messages=messages)
        text = reply.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
        speak(text)
