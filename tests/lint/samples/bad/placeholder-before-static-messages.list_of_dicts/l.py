from openai import OpenAI

SHOTS = [
    {"role": "user", "content": "Tell my sister that I will be late for dinner because of the snow."},
    {"role": "assistant", "content": "to: sister; what: late for dinner; why: snow; when: today"},
    {"role": "user", "content": "Remind Paul on Friday to bring the ladder back before the party."},
    {"role": "assistant", "content": "to: Paul; what: bring the ladder back; why: party; when: Friday"},
    {"role": "user", "content": "Let everybody in the choir know that the concert begins at seven."},
    {"role": "assistant", "content": "to: choir; what: concert begins at seven; why: -; when: -"},
]


def parse(history, text):
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": "You turn wishes into four fields."},
            *history,
            *SHOTS,
            {"role": "user", "content": text},
        ],
    )
