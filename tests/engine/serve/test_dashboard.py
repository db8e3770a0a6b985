"""The page at `/`: nothing of anybody's in it, nothing from elsewhere, and it shows what the cache does."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

SYSTEM = {"role": "system", "content": "You answer questions about parcels, <b>briefly</b>."}
BROWSER = next(
    (b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), ""
)


def ask(live: Live, text: str, session: str, **options: Any) -> str:
    """The request's id."""
    body = {"messages": [SYSTEM, {"role": "user", "content": text}], "max_tokens": 2}
    headers = {"x-agentkv-session": session, **options.pop("headers", {})}
    reply = live.post("/v1/chat/completions", {**body, **options}, headers=headers)
    assert reply.status_code == 200, reply.text
    return str(reply.headers["x-request-id"])


def calls(live: Live, query: str = "", **headers: str) -> list[dict[str, Any]]:
    with live.client() as client:
        reply = client.get(f"/agentkv/calls{query}", headers=headers)
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert found["schema"] == 1
    listed: list[dict[str, Any]] = found["calls"]
    return listed


@pytest.fixture
def live(make_engine: Callable[..., Any], serve: Callable[..., Live]) -> Live:
    return serve(make_engine(pool_tokens=2048, host_cache="1MiB"))


class Parts(HTMLParser):
    """What stands between the tags, and everything that names a place to load something from."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.bodies: dict[str, str] = {}
        self.places: list[str] = []
        self.styled: list[str] = []
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.places += [v or "" for k, v in attrs if k in ("src", "href", "action", "srcset")]
        self.styled += [k for k, _ in attrs if k == "style" or k.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        self.bodies[self._tag] = self.bodies.get(self._tag, "") + data


def test_the_page_is_whole_and_runs_nothing_but_its_own(live: Live) -> None:
    reply = live.get("/")
    assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    parts = Parts(reply.text)
    for tag in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(parts.bodies[tag].encode()).digest()).decode()
        assert len(parts.bodies[tag]) > 1000
        assert f"{tag}-src 'sha256-{digest}'" in policy, "the browser would refuse it"
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    assert parts.places == ["data:,"] and parts.styled == []
    assert re.findall(r"https?://[^\s\"']+", reply.text) == ["http://www.w3.org/2000/svg"]
    assert "innerHTML" not in reply.text and "insertAdjacent" not in reply.text


def test_every_element_that_the_script_asks_for_is_there(live: Live) -> None:
    text = live.get("/").text
    wanted = set(re.findall(r'\$\("([a-z-]+)"\)', text))
    assert len(wanted) > 15
    assert wanted <= set(re.findall(r'\bid="([a-z-]+)"', text))


def test_the_last_calls_come_first(live: Live) -> None:
    assert calls(live) == []
    first, second = ask(live, "Where is it?", "one"), ask(live, "Where is it now?", "one")
    both = ask(live, "Where?", "two", n=1)
    found = calls(live)
    assert [call["request_id"] for call in found] == [both, second, first]
    assert found[1]["session"] == "one" and found[1]["cached_tokens"] > 20
    assert found[1]["miss"]["reason"] == "text_changed"
    assert [c["request_id"] for c in calls(live, "?limit=1")] == [both]
    for bad in ("0", "-1", "1025", "many", "٣", "0000000011025", "000000001" + "0" * 5000):
        reply = live.get(f"/agentkv/calls?limit={bad}")
        assert reply.status_code == 400 and "1 to 1024" in reply.json()["error"]["message"]


def test_the_page_is_open_and_what_it_shows_is_not(
    make_engine: Callable[..., Any], serve: Callable[..., Live]
) -> None:
    live = serve(make_engine(pool_tokens=2048), api_keys=("key-a", "key-b"))
    assert live.get("/").status_code == 200
    for path in ("/agentkv/calls", "/agentkv/cache/stats", "/agentkv/cache/tree"):
        assert live.get(path).status_code == 401
    mine = ask(live, "Where is it?", "s", headers={"authorization": "Bearer key-a"})
    assert [c["request_id"] for c in calls(live, authorization="Bearer key-a")] == [mine]
    assert calls(live, authorization="Bearer key-b") == []


@pytest.mark.skipif(not BROWSER, reason="no Chromium here to look at the page with")
def test_a_browser_shows_it(live: Live, tmp_path: Path) -> None:
    for text in ("Where is it?", "Where is it now?"):
        ask(live, text, "<i>parcels</i>")
    done = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu",
            f"--user-data-dir={tmp_path}", "--virtual-time-budget=7000", "--dump-dom", live.url,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    page = done.stdout
    assert '<span id="state" role="status" class="">Live</span>' in page, page[:3000]
    stats = live.get("/agentkv/cache/stats").json()
    cached = sum(stats["cached_tokens_total"].values())
    assert cached > 0 and f'id="reused">{cached:,}<' in page
    assert page.count("&lt;i&gt;parcels&lt;/i&gt;") == 2 and "<i>parcels" not in page
    nodes = live.get("/agentkv/cache/tree?limit=400").json()["nodes"]
    assert len(re.findall(r'data-node="[0-9a-f]{8,}"', page)) == len(nodes) > 2
