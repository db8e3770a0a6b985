"""`agentkv cache` on a running server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkv.client.cache import CacheServer, CacheServerError
from agentkv.client.cache_text import tree_lines

Run = Callable[..., Any]
SYSTEM = {"role": "system", "content": "You answer questions about parcels, and never guess. " * 3}


@pytest.fixture
def url(make_engine: Callable[..., Any], serve: Callable[..., str]) -> str:
    engine = make_engine(pool_tokens=2048, pin_share=0.6)
    for seed in (1, 2):
        ids = [*range(10, 90), *(100 + seed * i % 90 for i in range(30))]
        engine.generate(ids, session="s")
    return serve(engine)


def said(agentkv: Run, *arguments: str, code: int = 0) -> Any:
    ran = agentkv("cache", *arguments)
    assert ran.code == code, (ran.out, ran.err)
    return ran


def test_looking(agentkv: Run, url: str) -> None:
    told = json.loads(said(agentkv, "stats", url, "--json").out)
    assert told["pool_tokens"] == 2048 and told["schema"] == 1
    text = said(agentkv, "stats", url).out
    assert f"{2048 - told['free_tokens']:,} of 2,048 tokens used" in text
    tree = json.loads(said(agentkv, "tree", url, "--json").out)
    trunk = max(tree["nodes"], key=lambda n: n["shares"])
    lines = said(agentkv, "tree", url).out.splitlines()
    assert lines[0].startswith("namespace 0: ")
    assert sum(trunk["id"] in line for line in lines) == 1
    assert len(lines) == 1 + len(tree["nodes"])
    assert trunk["id"] in said(agentkv, "top", url, "-n", "1").out
    assert len(said(agentkv, "ls", url).out.splitlines()) == len(tree["nodes"])
    plain = said(agentkv, "inspect", url, trunk["id"][:12]).out
    assert "children       2" in plain
    assert json.loads(said(agentkv, "inspect", url, trunk["id"], "--text", "--json").out)["text"]


def test_keeping(agentkv: Run, url: str, tmp_path: Path) -> None:
    chat, text = tmp_path / "chat.json", tmp_path / "prompt.txt"
    chat.write_text(json.dumps({"messages": [SYSTEM]}))
    text.write_text("A prompt that many calls begin with. " * 3)
    made = [
        json.loads(said(agentkv, "pin", str(file), url, "--ttl", "60", "--json").out)
        for file in (chat, text)
    ]
    listed = said(agentkv, "pins", url).out
    assert all(pin["pin"] in listed for pin in made)
    said(agentkv, "unpin", made[0]["pin"], url)
    left = json.loads(said(agentkv, "pins", url, "--json").out)["pins"]
    assert [p["pin"] for p in left] == [made[1]["pin"]]
    assert "freed" in said(agentkv, "flush", url).out
    assert json.loads(said(agentkv, "pins", url, "--json").out)["pins"] == []
    assert said(agentkv, "save", url).out.startswith("0 prefixes")


def test_what_goes_wrong(agentkv: Run, url: str, tmp_path: Path) -> None:
    odd = tmp_path / "odd.json"
    odd.write_text('{"prompt": "x"}')
    assert "without `messages`" in said(agentkv, "pin", str(odd), url, code=2).err
    assert "cannot be read" in said(agentkv, "pin", str(tmp_path / "no"), url, code=2).err
    assert "There is no pin" in said(agentkv, "unpin", "pin-0", url, code=2).err
    assert "No node" in said(agentkv, "inspect", url, "zzz", code=2).err
    assert "is a server" in said(agentkv, "verify", url, code=2).err
    gone = said(agentkv, "stats", "http://127.0.0.1:9", code=4).err
    assert "cannot be reached" in gone and "agentkv serve" in gone
    assert "nowhere is no URL" in said(agentkv, "tree", "nowhere", code=2).err
    for command in ("ls", "top"):
        assert "of a directory" in said(agentkv, command, url, "--namespace", "x", code=2).err


def test_a_key_is_asked_for_and_taken(
    make_engine: Callable[..., Any], serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serve(make_engine(pool_tokens=512), api_keys=("sesame",))
    monkeypatch.delenv("AGENTKV_API_KEY", raising=False)
    with CacheServer(url) as server, pytest.raises(CacheServerError, match="AGENTKV_API_KEY"):
        server.stats()
    monkeypatch.setenv("AGENTKV_API_KEY", "sesame")
    with CacheServer(url + "/v1") as server:
        assert server.stats()["pool_tokens"] == 512


def test_a_deep_tree_is_drawn_without_recursion() -> None:
    def node(index: int) -> dict[str, Any]:
        return {
            "id": f"n{index}", "parent": f"n{index - 1}" if index else None, "namespace": 0,
            "start": index, "tokens": 1, "tiers": ["device"], "uses": 0, "shares": 0, "age": 0,
            "role": "plain", "locked": False, "pinned": False, "paused": False,
        }  # fmt: skip

    tree = {
        "nodes": [node(i) for i in range(3000)], "namespaces": [{"tokens": 3000}],
        "left_out": 2, "left_out_tokens": 7,
    }  # fmt: skip
    lines = list(tree_lines(tree))
    assert len(lines) == 3002
    assert max(map(len, lines)) < 120
    assert lines[-1] == "and 2 more nodes, 7 tokens"
