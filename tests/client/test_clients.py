"""One protocol over both ways: the same answers, facts and errors."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentkv.client import (
    ChatReply,
    ChatRequest,
    Client,
    HttpClient,
    InProcessClient,
    TextRequest,
    Timeouts,
)
from agentkv.client import errors as e
from agentkv.engine.types import SamplingParams

if TYPE_CHECKING:
    from agentkv.engine import Engine

HELLO = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello, 世界 🙂"})
GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture(params=["inproc", "http"])
def client(
    request: pytest.FixtureRequest, shared: Engine, serve: Callable[..., str]
) -> Iterator[Client]:
    made: Client = (
        InProcessClient(shared) if request.param == "inproc" else HttpClient(serve(shared))
    )
    yield made
    made.close()


def chat(**changes: Any) -> ChatRequest:
    return ChatRequest(messages=HELLO, params=GREEDY, **changes)


def facts(reply: ChatReply) -> tuple[Any, ...]:
    r = reply.report
    return (
        reply.text,
        reply.finish_reason,
        reply.model,
        r.prompt_tokens,
        r.cached_tokens,
        r.completion_tokens,
        dict(r.cached_by_tier),
        r.reusable_tokens,
        r.segments,
        r.miss,
    )


def streamed(client: Client, request: Any) -> tuple[str, ChatReply]:
    deltas = list(client.stream(request))
    assert [d.reply is not None for d in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].text == ""
    assert deltas[-1].reply is not None
    return "".join(d.text for d in deltas), deltas[-1].reply


async def astreamed(client: Client, request: Any) -> ChatReply:
    deltas = [d async for d in client.astream(request)]
    assert deltas[-1].reply is not None
    assert "".join(d.text for d in deltas) == deltas[-1].reply.text
    return deltas[-1].reply


def test_four_ways_one_answer_and_one_report(shared: Engine, client: Client) -> None:
    cold = client.send(chat(session="s"))
    assert cold.report.cached_tokens == 0
    assert cold.report.reason == "first_call"
    warm = client.send(chat(session="s"))
    text, again = streamed(client, chat(session="s"))
    assert warm.text == cold.text == text, "reuse changes nothing"
    assert warm.report.cached_tokens == warm.report.prompt_tokens - 1

    async def both() -> tuple[ChatReply, ChatReply]:
        return await client.asend(chat(session="s")), await astreamed(client, chat(session="s"))

    whole, piecewise = asyncio.run(both())
    assert facts(warm) == facts(again) == facts(whole) == facts(piecewise)
    assert [s.kind for s in warm.report.segments][:2] == ["instructions", "question"]


def test_raw_text(client: Client) -> None:
    request = TextRequest(prompt="Once upon a time", params=GREEDY)
    cold = client.send(request)
    text, warm = streamed(client, request)
    assert text == cold.text
    assert warm.report.cached_tokens == warm.report.prompt_tokens - 1


def test_prefill_only(client: Client) -> None:
    request = replace(chat(), params=SamplingParams(max_tokens=0), add_generation_prompt=False)
    reply = client.send(request)
    assert reply.text == ""
    assert reply.report.completion_tokens == 0
    assert client.send(chat()).report.cached_tokens == reply.report.prompt_tokens


def test_salts_share_nothing(client: Client) -> None:
    client.send(chat(salt="one"))
    assert client.send(chat(salt="two")).report.cached_tokens == 0
    assert client.send(chat(salt="one")).report.cached_tokens > 0


def test_choices_and_logprobs(client: Client) -> None:
    params = SamplingParams(temperature=1, seed=3, n=2, max_tokens=4, logprobs=2)
    reply = client.send(ChatRequest(messages=HELLO, params=params))
    assert [c.index for c in reply.choices] == [0, 1]
    for choice in reply.choices:
        assert choice.logprobs is not None
        assert len(choice.logprobs["content"]) == 4
        assert len(choice.logprobs["content"][0]["top_logprobs"]) == 2
    _, again = streamed(client, ChatRequest(messages=HELLO, params=params))
    assert [c.text for c in again.choices] == [c.text for c in reply.choices]
    assert [c.logprobs and len(c.logprobs["content"]) for c in again.choices] == [4, 4]


def test_counting(client: Client) -> None:
    assert client.count(HELLO) == client.send(chat()).report.prompt_tokens
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    assert client.count(HELLO, tools) > client.count(HELLO)
    assert len(client.encode("<|im_end|>")) > 1, "in a text, nothing is a control token"
    assert client.context_window() == 2048


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (ChatRequest(messages=()), e.InvalidCall),
        (ChatRequest(messages=({"role": "user", "content": "x " * 4000},)), e.ContextOverflow),
        (
            ChatRequest(
                messages=({"role": "user", "content": [{"type": "image_url", "image_url": {}}]},)
            ),
            e.InvalidCall,
        ),
        (
            ChatRequest(messages=({"role": "user", "content": "half \ud800 a letter"},)),
            e.InvalidCall,
        ),
    ],
)
def test_errors_are_the_same_class_either_way(
    client: Client, request_: ChatRequest, kind: type[e.AgentKVError]
) -> None:
    with pytest.raises(kind) as found:
        client.send(request_)
    with pytest.raises(kind):
        list(client.stream(request_))
    with pytest.raises(kind):
        asyncio.run(client.asend(request_))
    with pytest.raises(kind):
        asyncio.run(astreamed(client, request_))
    if isinstance(found.value, e.ContextOverflow):
        assert found.value.limit == 2048
        assert (found.value.prompt_tokens or 0) > 2048
    if "surrogate" in str(found.value):
        assert "messages[0].content" in str(found.value)
        assert "half" not in str(found.value).partition("(")[0], "errors quote no prompt"


def test_errors_are_core_s_own_classes_too() -> None:
    from langchain_core import exceptions as core

    assert issubclass(e.ContextOverflow, core.ContextOverflowError)
    assert issubclass(e.Overloaded, core.ModelRateLimitError)
    assert issubclass(e.EngineUnavailable, core.ModelConnectionError)
    assert e.Overloaded("x").is_retryable
    assert not e.ContextOverflow("x").is_retryable


def test_closing_a_stream_aborts_the_call(shared: Engine, client: Client) -> None:
    params = SamplingParams(temperature=0, max_tokens=1500, ignore_eos=True)
    stream = client.stream(ChatRequest(messages=HELLO, params=params))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    _idle(shared)
    assert client.send(chat()).report.cached_tokens > 0, "what was computed stays"


def test_cancelling_a_task_aborts_the_call(shared: Engine, client: Client) -> None:
    params = SamplingParams(temperature=0, max_tokens=1500, ignore_eos=True)

    async def main() -> None:
        task = asyncio.create_task(client.asend(ChatRequest(messages=HELLO, params=params)))
        while not shared.stats()["num_requests_running"]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    _idle(shared)


def _idle(engine: Engine) -> None:
    import time

    end = time.monotonic() + 5
    while True:
        stats = engine.stats()
        if not stats["num_requests_running"] and not stats["locked_tokens"]:
            return
        assert time.monotonic() < end, stats
        time.sleep(0.01)


def test_the_whole_call_has_a_limit(client: Client) -> None:
    params = SamplingParams(temperature=0, max_tokens=1900, ignore_eos=True)
    request = ChatRequest(messages=HELLO, params=params, timeouts=Timeouts.of(0.15))
    with pytest.raises(e.CallTimeout):
        client.send(request)
    with pytest.raises(e.CallTimeout):
        asyncio.run(client.asend(request))
    total = replace(request, timeouts=Timeouts(first_token=30, chunk=30, total=0.15))
    with pytest.raises(e.CallTimeout) as found:
        list(client.stream(total))
    assert found.value.phase == "total"
    with pytest.raises(e.CallTimeout):
        asyncio.run(astreamed(client, total))


def test_thirty_two_threads_one_client(client: Client) -> None:
    from concurrent.futures import ThreadPoolExecutor

    want = client.send(chat()).text
    with ThreadPoolExecutor(32) as pool:
        texts = list(pool.map(lambda _: client.send(chat()).text, range(32)))
    assert texts == [want] * 32
    gc.collect()
