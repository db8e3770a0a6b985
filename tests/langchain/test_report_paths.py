"""Every way to call the model reports the same numbers, and the same answer, in and out of process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage

from agentkv.langchain import AgentKV, ChatAgentKV
from agentkv.prompt import static, volatile
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

MESSAGES = [
    SystemMessage([volatile("Now: 12:00.", name="clock"), static("You are kind. 世界 🙂")]),
    HumanMessage("Hello"),
]


@pytest.fixture(params=["inproc", "http"])
def llm(
    request: pytest.FixtureRequest, shared: Engine, serve: Callable[..., str]
) -> Iterator[ChatAgentKV]:
    where: dict[str, Any] = (
        {"engine": shared} if request.param == "inproc" else {"base_url": serve(shared)}
    )
    with ChatAgentKV(model="tiny", max_tokens=8, session="s", **where) as made:
        yield made


def facts(message: AIMessage) -> dict[str, Any]:
    """What must be equal: everything but times and ids."""
    report = dict(message.response_metadata["agentkv"])
    report.pop("ms")
    report.pop("saved_prefill_ms")
    meta = {k: v for k, v in message.response_metadata.items() if k not in ("agentkv", "id")}
    return {"text": message.text, "usage": message.usage_metadata, "report": report, **meta}


def joined(chunks: list[AIMessageChunk]) -> AIMessage:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


async def everything(llm: ChatAgentKV) -> dict[str, AIMessage]:
    return {
        "ainvoke": await llm.ainvoke(MESSAGES),
        "astream": joined([c async for c in llm.astream(MESSAGES)]),
        "abatch": (await llm.abatch([MESSAGES]))[0],
    }


def test_six_paths_report_the_same(llm: ChatAgentKV) -> None:
    """B049 (sums of chunks), B050 (counts that vanish in streams)."""
    cold = llm.invoke(MESSAGES)
    assert cold.usage_metadata is not None
    assert cold.usage_metadata["input_token_details"]["cache_read"] == 0
    paths = {
        "invoke": llm.invoke(MESSAGES),
        "stream": joined(list(llm.stream(MESSAGES))),
        "batch": llm.batch([MESSAGES])[0],
        **asyncio.run(everything(llm)),
    }
    want = facts(paths["invoke"])
    for name, message in paths.items():
        assert facts(message) == want, name
    assert want["text"] == cold.text, "reuse changes nothing"
    usage = want["usage"]
    details = usage["input_token_details"]
    assert details["cache_read"] == usage["input_tokens"] - 1
    assert details["cache_creation"] == 1
    assert usage["input_tokens"] >= sum(details.values())
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert want["model_name"] == "tiny"
    assert want["model_provider"] == "agentkv"
    assert want["finish_reason"] in ("stop", "length")


def test_v2_and_v3_events_carry_the_report(llm: ChatAgentKV) -> None:
    llm.invoke(MESSAGES)

    async def main() -> AIMessageChunk:
        events = [e async for e in llm.astream_events(MESSAGES, version="v2")]
        (end,) = [e for e in events if e["event"] == "on_chat_model_end"]
        return end["data"]["output"]

    want = facts(llm.invoke(MESSAGES))
    assert facts(asyncio.run(main())) == want
    # The v3 bridge merges differently: details are overwritten, strings are not summed.
    stream = llm.stream_events(MESSAGES, version="v3")
    message = stream.output
    assert message.usage_metadata == want["usage"]
    assert message.response_metadata["agentkv"]["cached_tokens"] == want["report"]["cached_tokens"]


def test_streaming_by_a_handler_reports_the_same(llm: ChatAgentKV) -> None:
    """A graph may route `invoke` through `_stream`."""
    llm.invoke(MESSAGES)
    want = facts(llm.invoke(MESSAGES))
    streaming = llm.model_copy(update={"streaming": True})
    assert "streaming" in streaming.model_fields_set
    assert facts(streaming.invoke(MESSAGES)) == want


def test_usage_and_report_are_on_the_last_chunk_only(llm: ChatAgentKV) -> None:
    chunks = [c for c in llm.stream(MESSAGES) if isinstance(c, AIMessageChunk)]
    assert len(chunks) > 2
    assert [c.usage_metadata is not None for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all("agentkv" not in c.response_metadata for c in chunks[:-1])
    assert chunks[-1].chunk_position == "last"


def test_handlers_see_tokens_and_usage(llm: ChatAgentKV) -> None:
    class Tokens(BaseCallbackHandler):
        text = ""

        def on_llm_new_token(self, token: Any, **_: Any) -> None:
            self.text += token

    handler = Tokens()
    whole = joined(list(llm.stream(MESSAGES, {"callbacks": [handler]})))
    assert handler.text == whole.text
    with get_usage_metadata_callback() as usage:
        message = llm.invoke(MESSAGES)
    assert usage.usage_metadata == {"tiny": message.usage_metadata}


def test_the_report_has_layout_segments_and_reason(llm: ChatAgentKV) -> None:
    first = CacheReport.from_message(llm.invoke(MESSAGES))
    assert first is not None
    assert first.reason == "first_call"
    assert first.layout is not None
    assert first.layout.moved == (("clock", "tail"),)
    kinds = [s.kind for s in first.segments]
    assert kinds.index("instructions") < kinds.index("question") < kinds.index("context")
    assert sum(s.tokens for s in first.segments) == first.prompt_tokens
    later = [SystemMessage([volatile("Now: 13:37.", name="clock"), *MESSAGES[0].content[1:]])]
    second = CacheReport.from_message(llm.invoke([*later, *MESSAGES[1:]]))
    assert second is not None
    assert second.cached_tokens > first.prompt_tokens // 2
    off = llm.model_copy(update={"layout": "off"})
    third = CacheReport.from_message(off.invoke(MESSAGES))
    fourth = CacheReport.from_message(off.invoke([*later, *MESSAGES[1:]]))
    assert third is not None
    assert fourth is not None
    assert fourth.cached_tokens < 20
    assert fourth.miss is not None
    assert (fourth.miss.reason, fourth.miss.segment) == ("text_changed", "clock")
    assert "static_first" in (fourth.miss.advice or "")


def test_a_batch_shares_its_prefix(llm: ChatAgentKV) -> None:
    rules = SystemMessage("You are kind. " * 20)
    prompts: list[Any] = [[rules, HumanMessage(f"Question {i}")] for i in range(6)]
    answers = llm.batch(prompts)
    reports = [CacheReport.from_message(a) for a in answers]
    shared = sorted(r.cached_tokens for r in reports if r is not None)
    assert shared[0] == 0, "one computes it"
    assert min(shared[1:]) > 250, "the others find it"
    assert [a.text for a in answers] == [llm.invoke(p).text for p in prompts]


def test_thread_id_is_the_session(shared: Engine, serve: Callable[..., str]) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=2)

    def reason(thread: str, text: str) -> str | None:
        config: Any = {"configurable": {"thread_id": thread}}
        report = CacheReport.from_message(llm.invoke([HumanMessage(text)], config))
        assert report is not None
        return report.reason

    assert reason("a", "One thing") == "first_call"
    assert reason("b", "Another matter") == "first_call"
    assert reason("a", "One thing") is None


def test_report_levels(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=2)
    off = llm.model_copy(update={"report": "off"}).invoke("x")
    assert "agentkv" not in off.response_metadata
    assert off.usage_metadata is not None
    assert off.usage_metadata["input_token_details"]["cache_read"] == 0
    full = llm.model_copy(update={"report": "full"}).invoke("x")
    names = [s["name"] for s in full.response_metadata["agentkv"]["segments"]]
    assert "messages[0]" in names


# -- text model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["inproc", "http"])
def test_the_text_model_keeps_its_report(
    shared: Engine, serve: Callable[..., str], where: str
) -> None:
    to: dict[str, Any] = {"engine": shared} if where == "inproc" else {"base_url": serve(shared)}
    with AgentKV(model="tiny", max_tokens=6, **to) as llm:
        prompt = "Once upon a time"
        cold = llm.generate([prompt])
        warm = llm.generate([prompt])
        first, second = cold.generations[0][0], warm.generations[0][0]
        assert first.text == second.text == llm.invoke(prompt)
        assert llm.batch([prompt, prompt]) == [first.text] * 2
        report = CacheReport.from_message(second)
        assert report is not None
        assert report.cached_tokens == report.prompt_tokens - 1
        assert warm.llm_output is not None
        assert warm.llm_output["token_usage"]["prompt_tokens"] == report.prompt_tokens
        assert "".join(llm.stream(prompt)) == first.text

        class End(BaseCallbackHandler):
            result: Any = None

            def on_llm_end(self, response: Any, **_: Any) -> None:
                self.result = response

        handler = End()
        list(llm.stream(prompt, {"callbacks": [handler]}))
        streamed = CacheReport.from_message(handler.result.generations[0][0])
        assert streamed is not None
        assert streamed.cached_tokens == report.cached_tokens
        assert streamed.segments == report.segments

        async def main() -> tuple[str, str]:
            pieces = [t async for t in llm.astream(prompt)]
            return await llm.ainvoke(prompt), "".join(pieces)

        assert asyncio.run(main()) == (first.text, first.text)
        two = llm.generate([prompt, "Another"])
        assert two.llm_output is not None
        assert two.llm_output["token_usage"]["prompt_tokens"] == sum(
            (g[0].generation_info or {})["token_usage"]["prompt_tokens"] for g in two.generations
        )
