from openai import OpenAI

TOPICS = {"parking", "rubbish", "noise", "street lights", "playgrounds", "dogs"}
CLOSED = {"dogs"}


def route(letter):
    system = (
        "You read letters to a town hall and name their topic. Topics: "
        + ", ".join(sorted(TOPICS))
        + ". Letters about two topics get the one that takes up more room. Letters that are "
        "about none of them get the topic 'other'. Do not answer the letter, do not judge its "
        "tone, and do not repeat names or addresses. Write the topic in lower case, alone."
    )
    reply = OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": letter}],
    )
    topic = reply.choices[0].message.content
    return None if topic in CLOSED else topic
