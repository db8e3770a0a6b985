import yaml
from openai import OpenAI


def ask(q):
    with open("prompts.yaml") as f:
        system = yaml.safe_load(f)["system"]
    return OpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "system", "content": system}, {"role": "user", "content": q}]
    )
