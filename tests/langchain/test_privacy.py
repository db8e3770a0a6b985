"""Keys, salts and document texts stay out of what is shown, traced, keyed or raised."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tracers.base import BaseTracer

from agentkv.client import errors as e
from agentkv.langchain import AgentKV, ChatAgentKV
from agentkv.prompt import Document

if TYPE_CHECKING:
    from agentkv.engine import Engine

KEY = "sk-sentinel-9f8e7d6c5b4a"
SALT = "salt-sentinel-1a2b3c4d"
TEXT = "The patient's diagnosis is confidential-sentinel."


class Everything(BaseTracer):
    """A tracer that keeps all that any tracer is told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def _persist_run(self, run: Any) -> None:
        self.seen.append(repr(run.__dict__))
        self.seen.append(
            json.dumps(run.model_dump() if hasattr(run, "model_dump") else {}, default=repr)
        )


def told(text: str) -> list[str]:
    words = {"key": KEY, "salt": SALT, "text": "confidential", "more text": "diagnosis"}
    return [name for name, value in words.items() if value in text]


@pytest.mark.parametrize("where", ["inproc", "http"])
def test_nothing_private_reaches_a_trace(
    shared: Engine, serve: Callable[..., str], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R12: on good calls, on failed ones, and when a document has changed (the report says so)."""
    caplog.set_level(logging.DEBUG)
    to: dict[str, Any] = (
        {"engine": shared}
        if where == "inproc"
        else {"base_url": serve(shared, api_keys=(KEY,)), "api_key": KEY}
    )
    tracer = Everything()
    with ChatAgentKV(
        model="tiny",
        max_tokens=2,
        cache_salt=SALT,
        session="s",
        documents=[Document("d", TEXT * 3)],
        **to,
    ) as llm:
        config: Any = {"callbacks": [tracer]}
        ask = [SystemMessage("Be kind."), HumanMessage("Hello")]
        answers = [
            llm.invoke(ask, config),
            llm.invoke(ask, config, documents=[Document("d", "Changed. " + TEXT)]),
            llm.bind_documents([Document("e", TEXT)]).invoke(ask, config),
            list(llm.stream(ask, config, documents=[Document("d", TEXT)]))[-1],
        ]
        with pytest.raises(e.AgentKVError) as failed:
            llm.invoke("y" * 9000, config)
        shown = [repr(llm), str(llm), str(failed.value), repr(llm._identifying_params)]
        shown += [json.dumps(a.response_metadata) for a in answers]
        shown += tracer.seen
        assert len(tracer.seen) == 10
        for text in shown:
            assert told(text) == []
    assert told(caplog.text) == []


def test_a_refused_key_is_not_repeated(shared: Engine, serve: Callable[..., str]) -> None:
    url = serve(shared, api_keys=("another",))
    tracer = Everything()
    for made in (
        ChatAgentKV(base_url=url, api_key=KEY, max_retries=0),  # type: ignore[arg-type]
        AgentKV(base_url=url, api_key=KEY, max_retries=0),  # type: ignore[arg-type]
    ):
        with pytest.raises(e.AuthenticationFailed) as found:
            made.invoke("x", {"callbacks": [tracer]})
        assert not hasattr(found.value, "response"), "core would copy its headers into the trace"
        for error in (found.value, found.value.__cause__, found.value.__context__):
            assert told(repr(error)) == []
    assert all(told(text) == [] for text in tracer.seen)


def test_a_response_cache_keeps_salts_apart_without_showing_them(shared: Engine) -> None:
    one, two = (ChatAgentKV(model="tiny", engine=shared, cache_salt=s) for s in (SALT, SALT + "2"))
    keys = [m._get_llm_string(documents=[Document("d", TEXT)]) for m in (one, two)]
    assert keys[0] != keys[1]
    assert told("".join(keys)) == []
    assert (
        one._get_llm_string()
        == ChatAgentKV(model="tiny", engine=shared, cache_salt=SALT)._get_llm_string()
    )
