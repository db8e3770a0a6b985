"""What every request passes through: names, keys, limits, and the shape of a refusal."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.serve.config import KEY_VARIABLE, ServeConfig, read_api_keys

if TYPE_CHECKING:
    from tests.engine.serve.conftest import Live

    Serve = Callable[..., Live]

CHAT = "/v1/chat/completions"


def code(reply: httpx.Response, status: int) -> str:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert isinstance(error["code"], str)
    return str(error["code"])


def test_while_loading_only_health_answers(serve: Serve) -> None:
    live = serve(None)
    assert live.get("/health").status_code == 200
    for path in ("/ready", "/v1/models", "/server_info", "/health_generate"):
        reply = live.get(path)
        assert code(reply, 503) == "server_loading"
        assert reply.headers["retry-after"]
    assert code(live.post(CHAT, {"messages": []}), 503) == "server_loading"
    live.service.phase = "failed"
    assert code(live.get("/health"), 503) == "server_failed"


def test_routes_and_methods_refuse_in_json(serve: Serve) -> None:
    live = serve(None)
    assert code(live.get("/v1/nothing"), 404) == "route_not_found"
    assert code(live.post("/v1/responses", {}), 404) == "route_not_found"
    reply = live.get("/flush_cache")
    assert code(reply, 405) == "method_not_allowed"
    assert reply.headers["allow"] == "POST"


def test_request_ids_are_echoed_or_made(serve: Serve) -> None:
    with serve(None).client() as client:
        given = client.get("/health", headers={"x-request-id": "abc-1.2_3"})
        assert given.headers["x-request-id"] == "abc-1.2_3"
        for bad in ("a b", "x" * 129, "ä", ""):
            reply = client.get("/health", headers={b"x-request-id": bad.encode("utf-8")})
            assert len(reply.headers["x-request-id"]) == 32
        assert client.get("/v1/no").headers["x-request-id"]


def test_a_foreign_host_or_origin_is_refused(serve: Serve) -> None:
    live = serve(None, allowed_hosts=("box.example",))
    with live.client() as client:
        for host in ("evil.example", "127.0.0.1.evil.example", "[::", "localhost.evil.example:80"):
            assert code(client.get("/health", headers={"host": host}), 403) == "host_not_allowed"
        for host in ("localhost:1", "127.0.0.1", "[::1]:9", "BOX.example", "a.localhost"):
            assert client.get("/health", headers={"host": host}).status_code == 200
        evil = {"origin": "https://evil.example"}
        assert code(client.post("/flush_cache", headers=evil), 403) == "origin_not_allowed"
        assert (
            code(client.post("/flush_cache", headers={"origin": "null"}), 403)
            == "origin_not_allowed"
        )
        ours = {"origin": "http://localhost:3000"}
        assert code(client.post("/flush_cache", headers=ours), 503) == "server_loading"


def test_keys_guard_every_route_but_health(serve: Serve) -> None:
    live = serve(None, api_keys=("sésame", "two"))
    with live.client() as client:
        assert client.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/server_info", "/v1/nothing", "/get_model_info"):
            assert code(client.get(path), 401) == "invalid_api_key"
        for name, value in (
            ("authorization", "Bearer nope"),
            ("authorization", "Basic two"),
            ("x-api-key", "ÿþ"),
        ):
            headers = {name.encode(): value.encode("latin-1")}
            assert code(client.get("/v1/models", headers=headers), 401) == "invalid_api_key"
        for name, value in (
            ("authorization", "Bearer sésame"),
            ("authorization", "bearer two"),
            ("x-api-key", "two"),
        ):
            headers = {name.encode(): value.encode("utf-8")}
            assert client.get("/metrics", headers=headers).status_code == 200


def test_bodies_must_be_plain_json_of_bounded_size(serve: Serve) -> None:
    live = serve(None, max_body=1000)

    def pieces(size: int) -> Any:
        for _ in range(size // 100):
            yield b" " * 100

    with live.client() as client:
        json_type = {"content-type": "application/json"}
        form = client.post("/abort_request", data={"a": "b"})
        assert code(form, 415) == "unsupported_media_type"
        text = client.post("/abort_request", content=b"{}", headers={"content-type": "text/plain"})
        assert code(text, 415) == "unsupported_media_type"
        packed = client.post(
            "/abort_request", content=b"x", headers={**json_type, "content-encoding": "gzip"}
        )
        assert code(packed, 415) == "unsupported_encoding"
        big = client.post("/abort_request", content=b" " * 1001, headers=json_type)
        assert code(big, 413) == "request_too_large"
        # Chunked: nothing announces the size, so it is counted.
        chunked = client.post("/abort_request", content=pieces(5000), headers=json_type)
        assert code(chunked, 413) == "request_too_large"
        charset = {"content-type": "application/json; charset=utf-8"}
        fine = client.post("/abort_request", content=b"{}", headers=charset)
        assert code(fine, 400) == "missing_required_parameter"


def test_half_a_request_is_not_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.engine.serve import connection

    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.6)
    live = serve(None, receive_timeout=0.2)
    start = b"POST /abort_request HTTP/1.1\r\nhost: localhost\r\n"
    with live.raw() as sock:
        sock.sendall(start + b"content-type: application/json\r\ncontent-length: 50\r\n\r\n{")
        assert sock.recv(4096).startswith(b"HTTP/1.1 408")
    for half in (start, b"", start + b"content-length: 9\r\n\r\n"):
        with live.raw() as sock:
            began = time.monotonic()
            sock.sendall(half)
            while sock.recv(4096):
                pass
            assert time.monotonic() - began < 5
    with live.raw() as sock:
        sock.sendall(start + b"x: " + b"y" * 200_000)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(4096)[:12] in (b"HTTP/1.1 400", b"")


def test_what_is_no_http_gets_an_error_of_the_usual_shape(serve: Serve) -> None:
    live = serve(None)
    for sent in (b"hello\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\r\n\r\n"):
        with live.raw() as sock:
            sock.sendall(sent)
            said = b""
            while piece := sock.recv(4096):
                said += piece
        head, _, body = said.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"]["code"] == "invalid_http"


def test_an_offer_of_another_protocol_is_passed_over_in_silence(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    live = serve(None)
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c"}
    with live.client() as client:
        assert client.get("/health", headers=offer).status_code == 200
    assert [r.message for r in caplog.records if r.name.startswith("uvicorn")] == []


def test_a_bug_says_nothing_of_the_inside(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    live = serve(None)

    def broken() -> bytes:
        raise RuntimeError("secret at 0xdeadbeef in /home/me")

    monkeypatch.setattr(live.service.metrics, "text", broken)
    reply = live.get("/metrics")
    assert code(reply, 500) == "internal_error"
    assert "secret" not in reply.text
    assert reply.headers["x-request-id"]


def test_an_open_port_needs_a_key() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org"):
        with pytest.raises(InvalidRequest, match="--api-key-file"):
            ServeConfig(host=host)
        assert ServeConfig(host=host, insecure_no_auth=True)
        assert "hush" not in repr(ServeConfig(host=host, api_keys=("hush",)))
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        assert ServeConfig(host=host)


def test_keys_come_from_a_file_or_the_environment(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    path = tmp_path / "keys"
    path.write_text("# mine\none\n\ntwo\none\n")
    assert read_api_keys(path) == ("one", "two")
    assert read_api_keys(None) == ()
    monkeypatch.setenv(KEY_VARIABLE, "three")
    assert read_api_keys(path) == ("one", "two", "three")
    path.write_text("# none\n")
    for bad in (path, tmp_path / "absent"):
        with pytest.raises(InvalidRequest):
            read_api_keys(bad)
