"""A real server on a loopback port, in a thread, for the tests of this folder."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agentkv.engine.serve.app import create_app
from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.run import address, bind, make_server
from agentkv.engine.serve.service import Service

if TYPE_CHECKING:
    from agentkv.engine import Engine


@dataclass
class Live:
    """A running server. `engine` is None while it "loads"."""

    url: str
    port: int
    service: Service
    engine: Any

    def client(self, **options: Any) -> httpx.Client:
        # Loading certificates takes longer than most calls here, and nothing is encrypted.
        return httpx.Client(base_url=self.url, timeout=30, verify=False, **options)

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:
        with self.client() as client:
            return client.post(path, json=body, **options)

    def get(self, path: str) -> httpx.Response:
        with self.client() as client:
            return client.get(path)

    def stream(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a streamed call, which must end with `[DONE]`."""
        return self.stream_with_headers(path, body)[0]

    def stream_with_headers(
        self, path: str, body: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], httpx.Headers]:
        request = {**body, "stream": True}
        with self.client() as client, client.stream("POST", path, json=request) as reply:
            assert reply.status_code == 200, reply.read()
            lines = [line for line in reply.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line[6:]) for line in lines[:-1]], reply.headers

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def send(self, path: str, body: dict[str, Any]) -> socket.socket:
        """Send a request on a connection of its own, and leave the answer unread."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        sock = self.raw()
        sock.sendall(head.encode() + data)
        return sock

    def until(self, done: Callable[[dict[str, Any]], bool], seconds: float = 5.0) -> dict[str, Any]:
        """Poll `/server_info` until `done`; fails with the last reply after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            info: dict[str, Any] = self.get("/server_info").json()
            if done(info):
                return info
            assert time.monotonic() < end, info
            time.sleep(0.01)

    def until_idle(self, seconds: float = 5.0) -> dict[str, Any]:
        """Wait until nothing runs, waits, is locked or is in flight."""
        return self.until(
            lambda i: (
                not i["num_requests_running"]
                and not i["num_requests_waiting"]
                and not i["locked_tokens"]
                and not i["private_tokens"]
                and not i["num_http_requests"]
            ),
            seconds,
        )


@pytest.fixture
def serve() -> Iterator[Callable[..., Live]]:
    """Start servers: `serve(engine, **config)`. All are stopped; engines stay with their makers."""
    stops: list[Callable[[], None]] = []

    def start(engine: Any, **settings: Any) -> Live:
        config = ServeConfig(port=0, **settings)
        sock = bind(config)
        app = create_app(engine, config)
        server = make_server(app, config)

        def work() -> None:
            asyncio.run(server.serve(sockets=[sock]))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        end = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.005)

        def stop() -> None:
            server.force_exit = True
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()

        stops.append(stop)
        url = address(sock)
        return Live(url, int(url.rsplit(":", 1)[1]), app.state.service, engine)

    yield start
    for stop in stops:
        stop()


@pytest.fixture(scope="session")
def tiny_engine(tiny_llama_dir: Path) -> Iterator[Engine]:
    """One engine on the tiny model for the whole folder."""
    from agentkv.engine import Engine

    with Engine(
        model=str(tiny_llama_dir),
        served_name="tiny",
        dtype="float32",
        pool_tokens=8192,
        threads=1,
        check_invariants=True,
    ) as engine:
        yield engine


@pytest.fixture
def tiny(tiny_engine: Engine, serve: Callable[..., Live]) -> Live:
    """A server on the shared tiny engine, with an empty cache."""
    tiny_engine.flush()
    return serve(tiny_engine)
