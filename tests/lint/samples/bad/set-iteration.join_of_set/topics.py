from openai import OpenAI

TOPICS = {"parking", "rubbish", "noise", "street lights", "playgrounds", "dogs"}


def route(letter):
    system = (
        "You read letters to a town hall and name their topic. Topics: "
        + ", ".join(TOPICS)
        + ". Letters about two topics get the one that takes up more room. Letters that are "
        "about none of them get the topic 'other'. Do not answer the letter, do not judge its "
        "tone, and do not repeat names or addresses. Write the topic in lower case, alone, on "
        "the first line. On the second line write how sure you are, from zero to ten."
    )
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "system", "content": system}, {"role": "user", "content": letter}],
    )
