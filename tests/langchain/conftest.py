"""A small engine, and a real server on a loopback port for clients to talk to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentkv.engine import Engine


@pytest.fixture(scope="session")
def one_engine(tiny_llama_dir: Path) -> Iterator[Engine]:
    """An engine on the tiny model for the whole folder; use `shared`, which empties it."""
    from agentkv.engine import Engine

    with Engine(
        model=str(tiny_llama_dir), served_name="tiny", dtype="float32", pool_tokens=8192
    ) as made:
        yield made


@pytest.fixture
def shared(one_engine: Engine) -> Engine:
    """An engine whose cache and memory of earlier calls are empty."""
    one_engine.flush()
    one_engine._explainer.forget()
    return one_engine


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(engine, **config)` starts a server and returns its URL; all are stopped."""
    from agentkv.engine.serve.app import create_app
    from agentkv.engine.serve.config import ServeConfig
    from agentkv.engine.serve.run import address, bind, make_server

    stops: list[Callable[[], None]] = []

    def start(engine: Any, **settings: Any) -> str:
        config = ServeConfig(port=0, **settings)
        sock = bind(config)
        server = make_server(create_app(engine, config), config)
        loop = asyncio.new_event_loop()

        def work() -> None:
            loop.run_until_complete(server.serve(sockets=[sock]))
            loop.close()

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

        stops.append(stop)
        return address(sock)

    yield start
    for stop in stops:
        stop()
