"""What only HTTP has: addresses, keys, retries, broken streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agentkv.client import ChatRequest, HttpClient, Timeouts
from agentkv.client import errors as e
from agentkv.client.retry import Attempts, parse_retry_after
from agentkv.client.sse import Events
from agentkv.engine.types import SamplingParams

if TYPE_CHECKING:
    from agentkv.engine import Engine

HELLO = ({"role": "user", "content": "Hello"},)
REQUEST = ChatRequest(messages=HELLO, params=SamplingParams(temperature=0, max_tokens=4))
SECRET = "sk-test-0123456789"


class Flaky(httpx.BaseTransport):
    """The real network, but for the first requests, which meet what a bad day has to offer."""

    def __init__(self, *failures: int | type[Exception], cut: bool = False) -> None:
        self._failures = list(failures)
        self._inner = httpx.HTTPTransport()
        self._cut = cut
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self._failures:
            failure = self._failures.pop(0)
            if not isinstance(failure, int):
                raise failure("bad day")
            body = {"error": {"message": "busy", "type": "x", "code": None}}
            return httpx.Response(failure, json=body, headers={"retry-after": "0"})
        response = self._inner.handle_request(request)
        if self._cut:
            return httpx.Response(200, stream=_Cut(response.stream))
        return response


class _Cut(httpx.SyncByteStream):
    """A body that ends after its first text, as when a server dies."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        for data in self._inner:  # type: ignore[attr-defined]
            yield data
            if b'"content":"' in data and b'"content":""' not in data:
                raise httpx.ReadError("connection reset")


def ours(url: str, transport: httpx.BaseTransport, **options: Any) -> HttpClient:
    """A client that need not ask first whose server it is."""
    http_client = httpx.Client(transport=transport)
    return HttpClient(url, dialect="agentkv", http_client=http_client, **options)


@pytest.fixture
def url(shared: Engine, serve: Callable[..., str]) -> str:
    return serve(shared)


def test_a_base_url_with_or_without_v1(url: str) -> None:
    for base in (url, url + "/", url + "/v1", url + "/v1/"):
        assert HttpClient(base).send(REQUEST).report.prompt_tokens > 0
    with pytest.raises(ValueError, match="http://"):
        HttpClient("localhost:8080")


@pytest.mark.parametrize("failure", [429, 500, 502, 503, httpx.ConnectError])
def test_retries_what_may_pass(url: str, failure: int | type[Exception]) -> None:
    flaky = Flaky(failure, failure)
    client = ours(url, flaky)
    assert client.send(REQUEST).text
    assert len(flaky.requests) == 3
    flaky = Flaky(failure)
    client = ours(url, flaky)
    assert list(client.stream(REQUEST))[-1].reply is not None
    assert len(flaky.requests) == 2


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (400, e.InvalidCall),
        (401, e.AuthenticationFailed),
        (403, e.PermissionDenied),
        (404, e.UnknownModel),
        (httpx.ReadTimeout, e.CallTimeout),
    ],
)
def test_does_not_retry_what_will_not(
    url: str, failure: int | type[Exception], kind: type[Exception]
) -> None:
    flaky = Flaky(failure)
    with pytest.raises(kind):
        ours(url, flaky).send(REQUEST)
    assert len(flaky.requests) == 1


@pytest.mark.parametrize("failure", [429, 503, httpx.ConnectError])
def test_retries_when_the_first_question_fails(url: str, failure: int | type[Exception]) -> None:
    flaky = Flaky(failure)
    client = HttpClient(url, http_client=httpx.Client(transport=flaky))
    assert client.send(REQUEST).report.segments
    assert [r.url.path for r in flaky.requests] == ["/v1/models"] * 2 + ["/v1/chat/completions"]
    assert not client.send(REQUEST).report.estimated, "it is ours, and was found to be"
    assert len(flaky.requests) == 4


def test_gives_up_after_max_retries(url: str) -> None:
    flaky = Flaky(*[503] * 5)
    client = ours(url, flaky, max_retries=1)
    with pytest.raises(e.EngineUnavailable, match="busy"):
        client.send(REQUEST)
    assert len(flaky.requests) == 2


def test_never_retries_after_the_first_token(url: str) -> None:
    flaky = Flaky(cut=True)
    client = ours(url, flaky)
    got = []
    with pytest.raises(e.EngineUnavailable):
        for delta in client.stream(REQUEST):
            got.append(delta.text)
    assert got
    assert len(flaky.requests) == 1


def test_waits_as_the_server_asks_and_not_beyond_the_limit() -> None:
    busy = e.Overloaded("busy", retry_after=3.0)
    assert Attempts(2, Timeouts()).wait_after(busy) == 3.0
    assert Attempts(2, Timeouts(total=2)).wait_after(busy) is None
    assert Attempts(2, Timeouts()).wait_after(e.Overloaded("busy", retry_after=999)) is None
    assert Attempts(0, Timeouts()).wait_after(busy) is None
    waits = Attempts(9, Timeouts())
    pauses = [waits.wait_after(e.Overloaded("x")) or 0 for _ in range(8)]
    assert all(p <= 8 for p in pauses)
    assert pauses[3] > pauses[0]
    assert [parse_retry_after(v) for v in ("2", "1.5", None, "Wed, 21 Oct", "-1")] == [
        2.0,
        1.5,
        None,
        None,
        None,
    ]


def test_a_key_is_sent_and_shown_nowhere(shared: Engine, serve: Callable[..., str]) -> None:
    url = serve(shared, api_keys=(SECRET,))
    with pytest.raises(e.AuthenticationFailed) as found:
        HttpClient(url, api_key="wrong-" + SECRET).send(REQUEST)
    client = HttpClient(url, api_key=SECRET)
    assert client.send(REQUEST).text
    assert SECRET not in repr(client) + str(found.value) + repr(found.value)


def test_nobody_there() -> None:
    client = HttpClient("http://127.0.0.1:9", max_retries=0)
    with pytest.raises(e.EngineUnavailable, match="agentkv serve"):
        client.send(REQUEST)


@pytest.mark.parametrize("dialect", ["auto", "agentkv"])
def test_no_time_left_is_no_broken_connection(url: str, dialect: Any) -> None:
    late = replace(REQUEST, timeouts=Timeouts(total=1e-9))
    client = HttpClient(url, dialect=dialect)
    with pytest.raises(e.CallTimeout):
        client.send(late)
    with pytest.raises(e.CallTimeout):
        list(client.stream(late))


def test_another_thing_answers(url: str) -> None:
    class Page(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, text="<html>welcome</html>")

    client = HttpClient(url, max_retries=0, http_client=httpx.Client(transport=Page()))
    with pytest.raises(e.EngineFailed):
        client.send(REQUEST)
    with pytest.raises(e.EngineUnavailable, match="broke off"):
        list(client.stream(REQUEST))


def test_only_what_differs_from_a_default_is_sent(url: str) -> None:
    flaky = Flaky()
    client = ours(url, flaky, model="tiny")
    client.send(REQUEST)
    assert json.loads(flaky.requests[0].content) == {
        "model": "tiny",
        "messages": list(HELLO),
        "max_tokens": 4,
        "temperature": 0,
    }


def test_events_are_read_as_the_standard_says() -> None:
    events = Events()
    lines = [": ping", "", "event: x", "data: a", "data:b", "", "id: 3", "", "data: [DONE]", ""]
    assert [d for d in map(events.feed, lines) if d is not None] == ["a\nb", "[DONE]"]
