import datetime

from openai import OpenAI


def build():
    lines = []
    lines.append("Time of day: " + datetime.datetime.now().strftime("%H:%M"))
    lines.append("You help visitors of a zoo to plan their way.")
    lines.append("Feeding times: seals at eleven and three, penguins at two, lions never in public.")
    lines.append("The monkey house is closed for rain, the tropical hall is warm and wet all year.")
    lines.append("Prams fit everywhere except into the aviary and the lookout tower.")
    lines.append("Do not promise that an animal can be seen. Suggest at most five stops.")
    return "\n".join(lines)


def plan(question):
    return OpenAI().chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": build()},
            {"role": "user", "content": question},
        ],
    )
