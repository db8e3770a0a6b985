from openai import OpenAI

client = OpenAI()
VERDICT = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"type": "object"}}}


def judge(messages, rounds):
    for number in range(rounds):
        reply = client.chat.completions.create(
            model="gpt-4o",
            messages=messages,
            response_format=VERDICT,
            temperature=0.2 if number == rounds - 1 else 0.9,
        )
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
    return messages
