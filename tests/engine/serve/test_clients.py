"""Unmodified clients against a real server and a real model: openai, langchain-openai."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import openai
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

MODEL = "smollm2-135m"
MESSAGES: list[Any] = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "What is the capital of France?"},
]
SETTINGS: dict[str, Any] = {"model": MODEL, "max_tokens": 6, "temperature": 0}


@pytest.fixture
def live(engine: Any, serve: Callable[..., Live]) -> Live:
    engine.flush()
    return serve(engine)


def cached(usage: Any) -> int:
    assert type(usage.prompt_tokens_details.cached_tokens) is int
    return int(usage.prompt_tokens_details.cached_tokens)


def test_openai_sync_and_async_stream_and_not(live: Live) -> None:
    with openai.OpenAI(base_url=live.url + "/v1", api_key="x") as client:
        assert [m.id for m in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).id == MODEL
        cold = client.chat.completions.create(messages=MESSAGES, **SETTINGS)
        text = cold.choices[0].message.content
        assert text and cold.usage and cached(cold.usage) == 0
        prompt = cold.usage.prompt_tokens

        chunks = list(
            client.chat.completions.create(
                messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **SETTINGS
            )
        )
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
        assert chunks[-1].usage and cached(chunks[-1].usage) == prompt - 1
        assert chunks[-1].usage.completion_tokens == cold.usage.completion_tokens
        assert chunks[-1].usage.model_extra and chunks[-1].usage.model_extra["agentkv"]["schema"]
        raw = client.chat.completions.with_raw_response.create(messages=MESSAGES, **SETTINGS)
        assert raw.headers["x-agentkv-cached-tokens"] == str(prompt - 1)
        assert raw.parse().choices[0].message.content == text, "warm equals cold"
        done = client.completions.create(model=MODEL, prompt="1, 2, 3,", max_tokens=4, logprobs=1)
        assert done.choices[0].logprobs and len(done.choices[0].logprobs.tokens or ()) == 4
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="gpt-4", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as over:
            client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=10**6, stream=True
            )
        assert over.value.code == "context_length_exceeded"

    async def also() -> None:
        async with openai.AsyncOpenAI(base_url=live.url + "/v1", api_key="x") as client:
            whole = await client.chat.completions.create(messages=MESSAGES, **SETTINGS)
            assert whole.choices[0].message.content == text
            assert whole.usage and cached(whole.usage) == prompt - 1
            stream = await client.chat.completions.create(
                messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **SETTINGS
            )
            parts = [c async for c in stream]
            assert "".join(c.choices[0].delta.content or "" for c in parts if c.choices) == text
            assert parts[-1].usage and cached(parts[-1].usage) == prompt - 1

    asyncio.run(also())


def test_langchain_openai(live: Live) -> None:
    key = SecretStr("x")
    llm = ChatOpenAI(
        model=MODEL, base_url=live.url + "/v1", api_key=key, temperature=0, max_completion_tokens=6
    )
    said = [("system", "You answer in one short sentence."), ("user", "Name a colour of the sky.")]
    first = llm.invoke(said)
    second = llm.invoke(said)
    assert first.content == second.content
    assert first.usage_metadata and second.usage_metadata
    total = first.usage_metadata["input_tokens"]
    assert first.usage_metadata["input_token_details"]["cache_read"] == 0
    assert second.usage_metadata["input_token_details"]["cache_read"] == total - 1
    assert second.response_metadata["token_usage"]["agentkv"]["page_size"] == 1
    streaming = llm.model_copy(update={"stream_usage": True})
    full = None
    for chunk in streaming.stream(said):
        full = chunk if full is None else full + chunk
    assert full is not None and full.content == first.content
    assert full.usage_metadata == second.usage_metadata

    async def also() -> None:
        answer = await streaming.ainvoke(said)
        assert answer.usage_metadata == second.usage_metadata
        parts = [c.content async for c in streaming.astream(said)]
        assert "".join(str(p) for p in parts) == first.content

    asyncio.run(also())
    with pytest.raises(ContextOverflowError):
        llm.invoke([("user", "x" * 100_000)])


@pytest.mark.parametrize("text", ["😀👍", "你好世界", "é à ü "])
def test_characters_of_several_tokens_are_never_split(live: Live, text: str) -> None:
    """The model may only say the tokens of these characters, and knows how they go on."""
    ids = live.post("/tokenize", {"prompt": text}).json()["tokens"]
    body = {
        "prompt": text * 6,
        "max_tokens": 12,
        "temperature": 0,
        "logit_bias": {str(i): 100 for i in ids},
    }
    whole = live.post("/v1/completions", body).json()["choices"][0]["text"]
    pieces = [e["choices"][0]["text"] for e in live.stream("/v1/completions", body)]
    assert "".join(pieces) == whole
    assert set(whole.rstrip("\ufffd")) & set(text)
    assert "\ufffd" not in whole
    for cut in (1, 2, 3, 5):
        short = live.post("/v1/completions", {**body, "max_tokens": cut}).json()
        assert whole.startswith(short["choices"][0]["text"])
        assert short["usage"]["completion_tokens"] == cut
