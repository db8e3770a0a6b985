"""`GET /agentkv/explain/{request_id}`: why a call did not reuse more, from the engine's own verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agentkv.engine.serve.job import Call
from agentkv.engine.serve.protocol import ChatRequest
from agentkv.engine.serve.record import Asked
from agentkv.engine.serve.verdicts import Verdicts
from agentkv.engine.types import CacheFacts, SamplingParams

if TYPE_CHECKING:
    from agentkv.engine import Engine
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"


@pytest.fixture
def tiny(shared: Engine, serve: Callable[..., Live]) -> Live:
    return serve(shared)


def ask(live: Live, request_id: str, system: str, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": "hello"},
        ],
        "max_tokens": 2,
        "temperature": 0,
        **more,
    }
    response = live.post(CHAT, body, headers={"x-request-id": request_id})
    assert response.status_code == 200, response.text
    usage: dict[str, Any] = response.json()["usage"]
    return usage


def test_it_says_what_the_reply_said(tiny: Live) -> None:
    session = {"agentkv": {"session": "s"}}
    ask(tiny, "one", "Rules. Today is the 1st. " + "More rules. " * 20, **session)
    usage = ask(tiny, "two", "Rules. Today is the 2nd. " + "More rules. " * 20, **session)
    found = tiny.get("/agentkv/explain/two").json()
    assert found["schema"] == 1 and found["request_id"] == "two" and found["session"] == "s"
    assert found["miss"] == usage["agentkv"]["miss"]
    assert found["miss"]["reason"] == "text_changed"
    assert found["miss"]["segment"] == "messages[0]"
    assert "1st" in found["miss"]["was"] and "2nd" in found["miss"]["now"]
    assert found["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] > 0
    assert sum(s["tokens"] for s in found["segments"]) == found["prompt_tokens"]
    assert tiny.get("/agentkv/explain/one").json()["miss"]["reason"] == "first_call"


def test_evicted_is_told_from_never_seen(
    make_engine: Callable[..., Engine], serve: Callable[..., Live]
) -> None:
    live = serve(make_engine(pool_tokens=512))
    ask(live, "a", "the first text " * 20)
    ask(live, "b", "quite another one " * 20)
    ask(live, "c", "and a third of them " * 18)
    ask(live, "d", "the first text " * 20)
    assert live.get("/agentkv/explain/d").json()["miss"]["reason"] == "evicted"


def test_several_prompts_of_one_request(tiny: Live) -> None:
    tiny.post(
        "/v1/completions",
        {"prompt": ["one thing", "another one"], "max_tokens": 1},
        headers={"x-request-id": "pair"},
    )
    found = tiny.get("/agentkv/explain/pair").json()
    assert [c["prompt_tokens"] for c in found["calls"]] == [
        len(tiny.engine.tokenizer.encode_raw(t)) for t in ("one thing", "another one")
    ]


def test_an_unknown_id_is_a_404(tiny: Live) -> None:
    response = tiny.get("/agentkv/explain/nobody")
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "request_not_found" and "1024 calls" in error["message"]
    with tiny.client() as client:
        assert client.post("/agentkv/explain/nobody", json={}).status_code == 405


def test_a_key_sees_its_own_calls_only(shared: Engine, serve: Callable[..., Live]) -> None:
    live = serve(shared, api_keys=("alpha", "beta"))
    body = {"messages": [{"role": "user", "content": "mine"}], "max_tokens": 1}
    with live.client() as client:
        sent = {"authorization": "Bearer alpha", "x-request-id": "r"}
        assert client.post(CHAT, json=body, headers=sent).status_code == 200
        mine = client.get("/agentkv/explain/r", headers={"authorization": "Bearer alpha"})
        theirs = client.get("/agentkv/explain/r", headers={"authorization": "Bearer beta"})
        nobody = client.get("/agentkv/explain/r")
    assert (mine.status_code, theirs.status_code, nobody.status_code) == (200, 404, 401)


def facts(segments: int) -> CacheFacts:
    return CacheFacts(
        prompt_tokens=10,
        cached_tokens=0,
        cached_by_tier={"device": 0},
        reusable_tokens=0,
        resident_tokens=0,
        page_size=1,
        miss=None,
        span_cached=tuple((f"messages[{i}]", 1, 0) for i in range(segments)),
    )


def test_what_is_kept_is_bounded() -> None:
    asked = Asked(ChatRequest(messages=[]))
    call = Call(prompt=np.arange(3, dtype=np.int32), params=SamplingParams())
    kept = Verdicts(most=100, most_bytes=100_000)
    for n in range(1000):
        kept.put(f"r{n}", asked, 0, call, facts(1))
    assert len(kept) == 100
    assert kept.get("r899", None) is None and kept.get("r900", None) is not None
    for n in range(1000):
        kept.put(f"long{n % 50}", asked, n % 3, call, facts(300))
        assert kept.size <= 100_000
    assert 0 < len(kept) < 20
    kept.put("huge", asked, 0, call, facts(10_000))
    assert kept.size == 0 and len(kept) == 0
    kept.put("r", asked, 0, call, facts(1))
    kept.put("r", asked, 1, call, facts(1))
    size = kept.size
    kept.put("r", asked, 0, call, facts(1))  # the id came again
    found = kept.get("r", None)
    assert found is not None and "calls" not in found and kept.size < size
