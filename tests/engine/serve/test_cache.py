"""`/agentkv/cache/*` over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

CHAT = "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Find a parcel by its number, wherever it is.",
            "parameters": {"type": "object", "properties": {"number": {"type": "string"}}},
        },
    }
]
SYSTEM = {"role": "system", "content": "You answer questions about parcels, briefly."}


def ask(text: str, **extra: Any) -> dict[str, Any]:
    messages = [SYSTEM, {"role": "user", "content": text}]
    return {"messages": messages, "tools": TOOLS, "tool_choice": "none", "max_tokens": 2,
            "temperature": 0, **extra}  # fmt: skip


def cached(reply: Any) -> int:
    assert reply.status_code == 200, reply.text
    return int(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture
def live(make_engine: Callable[..., Any], serve: Callable[..., Live]) -> Live:
    return serve(make_engine(pool_tokens=2048, pin_share=0.5))


def crowd(live: Live, calls: int = 6) -> None:
    for call in range(calls):
        live.post("/v1/completions", {"prompt": f"{call} " * 250, "max_tokens": 1})


def test_pin_a_conversation_then_find_it_then_let_it_go(live: Live) -> None:
    made = live.post("/agentkv/cache/pin", {"messages": [SYSTEM], "tools": TOOLS, "ttl": 60})
    assert made.status_code == 200, made.text
    pin = made.json()
    assert pin["tokens"] > 50
    crowd(live)
    assert cached(live.post(CHAT, ask("Where is it?"))) >= pin["tokens"]
    listed = live.get("/agentkv/cache/pins").json()["pins"]
    assert [(p["pin"], p["tokens"]) for p in listed] == [(pin["pin"], pin["tokens"])]
    assert 0 < listed[0]["expires_in"] <= 60
    assert live.get("/agentkv/cache/stats").json()["pinned_tokens"] == pin["tokens"]
    done = live.post("/agentkv/cache/unpin", {"pin": pin["pin"]})
    assert done.json()["unpinned"] == pin["pin"]
    assert live.post("/agentkv/cache/unpin", {"pin": pin["pin"]}).status_code == 404
    assert live.get("/agentkv/cache/pins").json()["pins"] == []


def test_a_chat_call_pins_its_tools_and_instructions(live: Live) -> None:
    live.post(CHAT, ask("Where is it?", agentkv={"pin": 60}))
    (pin,) = live.get("/agentkv/cache/pins").json()["pins"]
    crowd(live)
    assert cached(live.post(CHAT, ask("Another question."))) >= pin["tokens"] > 50
    refused = live.post(CHAT, ask("Where?", agentkv={"pin": -1}))
    assert refused.status_code == 400
    assert "pin must be above 0" in refused.json()["error"]["message"]


def test_hints(live: Live) -> None:
    live.post(CHAT, ask("Where is it?", agentkv={"session": "s"}))
    said = {"session": "s", "action": "pause", "ttl": 30}
    tokens = live.post("/agentkv/cache/hint", said).json()["tokens"]
    assert tokens > 50
    assert live.get("/agentkv/cache/stats").json()["paused_tokens"] == tokens
    for action in ("prefetch", "release"):
        reply = live.post("/agentkv/cache/hint", {"session": "s", "action": action})
        assert reply.status_code == 200, reply.text
    assert live.get("/agentkv/cache/stats").json()["paused_tokens"] == 0
    text = live.get("/metrics").text
    assert 'agentkv:hints_total{action="pause"} 1.0' in text
    assert "agentkv:pinned_tokens 0.0" in text


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("pin", {}, "messages"),
        ("pin", {"messages": [SYSTEM], "prompt": "x"}, "messages"),
        ("pin", {"prompt": ["a", "b"]}, "one prompt"),
        ("pin", {"prompt": "some text", "ttl": 0}, "ttl must be above 0"),
        ("pin", {"prompt": "word " * 300}, "more than all pins may keep"),
        ("unpin", {}, "pin"),
        ("hint", {"session": "s"}, "action"),
        ("hint", {"session": "s", "action": "explode"}, "action"),
        ("hint", {"session": "", "action": "pause"}, "session"),
        ("hint", {"session": "s" * 600, "action": "pause"}, "session"),
    ],
)
def test_what_is_wrong_is_said(live: Live, path: str, body: dict[str, Any], word: str) -> None:
    reply = live.post(f"/agentkv/cache/{path}", body)
    assert reply.status_code == 400, reply.text
    assert word in reply.text
    assert live.get("/agentkv/cache/stats").json()["pinned_tokens"] == 0


def test_the_tree_and_one_node(live: Live) -> None:
    live.post(CHAT, ask("Where is it?"))
    live.post(CHAT, ask("When does it come?"))
    tree = live.get("/agentkv/cache/tree").json()
    trunk = max(tree["nodes"], key=lambda n: n["tokens"])
    assert trunk["parent"] is None
    assert trunk["role"] == "core"
    assert "parcel" not in live.get("/agentkv/cache/tree").text
    few = live.get("/agentkv/cache/tree?limit=1").json()
    assert (len(few["nodes"]), few["left_out"]) == (1, len(tree["nodes"]) - 1)
    plain = live.get(f"/agentkv/cache/nodes/{trunk['id']}").json()
    assert "text" not in plain
    told = live.get(f"/agentkv/cache/nodes/{trunk['id'][:10]}?text=1").json()
    assert "Find a parcel" in told["text"]
    assert told["text_cut"] is False
    assert live.get("/agentkv/cache/nodes/ffffffffffff").status_code == 404
    for bad in ("limit=0", "limit=x", "limit=1000000", "depth=-1", "depth=" + "9" * 5000):
        assert live.get(f"/agentkv/cache/tree?{bad}").status_code == 400


def test_reading_changes_nothing_and_changing_needs_a_post(live: Live) -> None:
    for path in ("pin", "unpin", "hint", "save", "flush"):
        assert live.get(f"/agentkv/cache/{path}").status_code == 405
    assert live.post("/agentkv/cache/save", {}).json()["prefixes"] == 0
    live.post(CHAT, ask("Where is it?"))
    assert live.post("/agentkv/cache/flush", {}).json()["flushed_tokens"] > 50
    assert live.get("/agentkv/cache/tree").json()["nodes"] == []


def test_keys_see_and_touch_their_own_only(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    live = serve(make_engine(pool_tokens=2048, pin_share=0.5), api_keys=("key-a", "key-b"))
    a, b = ({"authorization": f"Bearer key-{name}"} for name in "ab")
    made = live.post("/agentkv/cache/pin", {"messages": [SYSTEM], "tools": TOOLS}, headers=a)
    pin = made.json()["pin"]
    live.post(CHAT, ask("Where?", agentkv={"session": "s"}, cache_salt="x"), headers=a)
    with live.client() as client:
        tree = client.get("/agentkv/cache/tree", headers=a).json()
        assert len(tree["namespaces"]) == 2
        assert client.get("/agentkv/cache/tree", headers=b).json()["nodes"] == []
        node = tree["nodes"][0]["id"]
        assert client.get(f"/agentkv/cache/nodes/{node}", headers=b).status_code == 404
        assert client.get("/agentkv/cache/pins", headers=b).json()["pins"] == []
        gone = client.post("/agentkv/cache/unpin", json={"pin": pin}, headers=b)
        assert gone.status_code == 404
        said = {"session": "s", "action": "release", "cache_salt": "x"}
        assert client.post("/agentkv/cache/hint", json=said, headers=b).json()["tokens"] == 0
        assert client.post("/agentkv/cache/hint", json=said, headers=a).json()["tokens"] > 0
        assert client.get("/agentkv/cache/stats").status_code == 401
