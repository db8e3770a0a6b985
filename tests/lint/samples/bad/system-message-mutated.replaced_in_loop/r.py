from openai import OpenAI

client = OpenAI()


def loop(task, plan, tools, execute):
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": task}]
    while not plan.done:
        messages[0] = {"role": "system", "content": f"Plan so far:\n{plan.render()}"}
        answer = client.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
        messages.append(answer.choices[0].message)
        messages += execute(answer)
        plan.update(answer)
