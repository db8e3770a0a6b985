from openai import OpenAI


def ask_again(messages, response, exception):
    reask_messages = [
        {"role": "assistant", "content": response.choices[0].message.content},
        {
            "role": "user",
            "content": f"The answer could not be read:\n{exception}\nCall the function correctly and mend the errors",
        },
    ]
    messages.extend(reask_messages)
    return OpenAI().chat.completions.create(model="gpt-4.1", messages=messages)
