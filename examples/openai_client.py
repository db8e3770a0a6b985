"""The stock OpenAI client against `agentkv serve`: cached tokens are in every reply, streamed or not.

    agentkv serve --port 8080                 # in another terminal
    python examples/openai_client.py          # or give another base URL as the argument

Needs `pip install openai`.
"""

from __future__ import annotations

import sys

from openai import OpenAI

RULES = "You are a kind assistant. Answer in one short sentence. " * 8


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key="none-needed")
    model = client.models.list().data[0].id
    for question in ("What is a cache?", "What is a prefix?", "What is a tree?"):
        stream = client.chat.completions.create(
            model=model,
            messages=[
                {"role": "system", "content": RULES},
                {"role": "user", "content": question},
            ],
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
        print(f"{question} ", end="")
        for chunk in stream:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
            if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
                cached = chunk.usage.prompt_tokens_details.cached_tokens
                print(f"\n  {chunk.usage.prompt_tokens} prompt tokens, {cached} of them cached")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1")
