import json

from openai import OpenAI

api = OpenAI()
RULES = """You read applications for allotment gardens on behalf of the association. Sort every letter into WAITING LIST,
TRANSFER, COMPLAINT or OTHER. A transfer needs the number of the plot and the consent of the household. A complaint
names the plot, the matter and since when it has gone on; hedges above two metres, fires and loud machines on Sundays are
the matters that the rules speak of. Never promise a plot, never name the length of the list, and never pass on who
complained. Answer with the label, a dash, and one sentence of at most fifteen words."""


def step(turns, tools):
    reply = api.chat.completions.create(
        model="gpt-4.1", tools=tools, messages=[{"role": "system", "content": RULES}, *turns]
    ).choices[0].message
    call = reply.tool_calls[0]
    given = json.loads(call.function.arguments)
    again = {"name": call.function.name, "arguments": json.dumps(given, indent=2)}
    turns.append({"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": again}]})
    return turns
