from openai import OpenAI

SCHOOL = "Hillside primary school"


def lesson(topic):
    return OpenAI().responses.create(
        model="gpt-4.1",
        instructions=f"You plan lessons for {SCHOOL}. A lesson has four parts and takes 45 minutes.",
        input=topic,
    )
