import json
import litellm


def step(messages, run):
    r = litellm.completion(model="gpt-4o", messages=messages)
    text = r.choices[0].message.content.strip()
    data = json.loads(text)
    with open("out.json", "w") as f:
        f.write(json.dumps(json.loads(text), indent=2))
    return run(data)
