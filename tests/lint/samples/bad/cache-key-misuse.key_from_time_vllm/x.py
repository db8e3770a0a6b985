import time

from openai import OpenAI

client = OpenAI(base_url="http://engine:8000/v1", api_key="-")


def ask(messages):
    return client.chat.completions.create(
        model="served",
        messages=messages,
        extra_body={"cache_salt": f"{time.time_ns()}"},
    )
