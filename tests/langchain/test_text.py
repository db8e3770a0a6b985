"""The text model: its report and counts on every path (core's own class drops them)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from agentkv.client import errors as e
from agentkv.langchain import AgentKV, Pricing
from agentkv.report import CacheReport

if TYPE_CHECKING:
    from agentkv.engine import Engine

PROMPT = "Once upon a time"


class Ends(BaseCallbackHandler):
    """The generations that end a run."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_llm_end(self, response: Any, **_: Any) -> None:
        self.seen.extend(g for generations in response.generations for g in generations)


async def _astream(llm: AgentKV, config: Any) -> str:
    return "".join([piece async for piece in llm.astream(PROMPT, config)])


PATHS: dict[str, Callable[[AgentKV, Any], str]] = {
    "invoke": lambda m, c: m.invoke(PROMPT, c),
    "stream": lambda m, c: "".join(m.stream(PROMPT, c)),
    "batch": lambda m, c: m.batch([PROMPT], c)[0],
    "generate": lambda m, c: m.generate([PROMPT], callbacks=c["callbacks"]).generations[0][0].text,
    "ainvoke": lambda m, c: asyncio.run(m.ainvoke(PROMPT, c)),
    "astream": lambda m, c: asyncio.run(_astream(m, c)),
    "abatch": lambda m, c: asyncio.run(m.abatch([PROMPT], c))[0],
}


def facts(generation: Any) -> dict[str, Any]:
    info = dict(generation.generation_info)
    report = dict(info.pop("agentkv"))
    for name in ("ms", "saved_prefill_ms"):
        report.pop(name)
    info.pop("id")
    return {**info, "report": report, "text": generation.text}


def test_every_path_has_the_report(shared: Engine, serve: Callable[..., str]) -> None:
    want: list[Any] = []
    price = Pricing(input=1, output=2)
    for where in ({"engine": shared}, {"base_url": serve(shared)}):
        for name, call in PATHS.items():
            shared.flush()
            shared._core.explainer.forget()
            ends = Ends()
            with AgentKV(model="tiny", max_tokens=6, session="s", price=price, **where) as llm:
                texts = [call(llm, {"callbacks": [ends]}) for _ in range(2)]
            got = [facts(g) for g in ends.seen]
            assert [g["text"] for g in got] == texts
            want = want or got
            assert got == want, (where, name)
    cold, warm = want
    assert cold["report"]["cached_tokens"] == 0
    assert warm["report"]["cached_tokens"] == warm["report"]["prompt_tokens"] - 1
    assert warm["text"] == cold["text"]
    assert warm["finish_reason"] == "length"
    tokens = warm["report"]["prompt_tokens"] + 2 * warm["report"]["completion_tokens"]
    assert warm["cost"]["total_cost"] == pytest.approx(tokens / 1e6)


def test_the_thread_is_the_session(shared: Engine) -> None:
    llm = AgentKV(model="tiny", engine=shared, max_tokens=2)
    reasons = []
    for thread in ("a", "b", "a"):
        ends = Ends()
        llm.invoke(PROMPT, {"callbacks": [ends], "metadata": {"thread_id": thread}})
        report = CacheReport.from_message(ends.seen[0])
        assert report is not None
        reasons.append(report.reason)
    assert reasons == ["first_call", None, None]


def test_what_only_a_chat_model_has_is_refused(shared: Engine) -> None:
    llm = AgentKV(model="tiny", engine=shared)
    cases: list[dict[str, Any]] = [
        {"tools": []},
        {"response_format": {"type": "json_object"}},
        {"documents": ["x"]},
    ]
    for wrong in cases:
        with pytest.raises(e.InvalidCall, match=next(iter(wrong))):
            llm.invoke("x", **wrong)
