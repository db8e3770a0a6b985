"""Running a server: the port first, then the model, then calls, and a calm end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

import uvicorn

from agentkv.engine.serve.app import create_app
from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.connection import DeadlineProtocol
from agentkv.engine.serve.record import Recorder
from agentkv.engine.serve.service import Service

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from agentkv.engine.engine import Engine

HEADER_BYTES = 64 * 1024
KEEP_ALIVE = 75
"""Longer than what clients keep idle connections for, so that they close first."""


class Unavailable(Exception):
    """The port or the recording's file cannot be had; the message says what to do."""


def run(config: ServeConfig) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return.

    A second signal ends at once. One that comes while the model is being loaded ends the process:
    what loads cannot be interrupted. Raises `Unavailable` when the port is taken or the recording
    cannot be opened, and whatever loading the model raised. The address is printed to stderr as soon
    as the port is bound, and again when the model is ready.
    """
    sock = bind(config)
    try:
        recorder = open_recording(config)
    except Unavailable:
        sock.close()
        raise
    app = create_app(None, config)
    service: Service = app.state.service
    service.recorder = recorder
    problem: list[Exception] = []
    try:
        with asyncio.Runner() as runner:
            loader = runner.run(_serve(app, service, sock, config, problem))
    finally:
        sock.close()
        if service.has_engine:
            service.engine.close()
        if recorder is not None:
            recorder.close()
            lost = f", {recorder.file.lost} could not be written" if recorder.file.lost else ""
            calls = "call" if recorder.file.lines == 1 else "calls"
            say(f"agentkv recorded {recorder.file.lines} {calls} in {recorder.file.path}{lost}")
    if problem:
        raise problem[0]
    if loader.is_alive() and not service.has_engine:
        # A thread inside native code would abort the interpreter when that shuts down around it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def bind(config: ServeConfig) -> socket.socket:
    """A listening socket. Raises `Unavailable` when the port is taken."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # Named, since asyncio turns Nagle's algorithm off for sockets that say they are TCP only: with it, a
    # body waits for the client's delayed acknowledgement of its headers, 40 ms for every reply.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((config.host.strip("[]"), config.port))
        sock.listen(512)
    except OSError as error:
        sock.close()
        # A name that is unknown, or an address of another machine: no port would do.
        wrong_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        raise Unavailable(
            f"Cannot listen on {config.host}:{config.port}: {error.strerror or error}. "
            + (
                "Give --host an address of this machine, such as 127.0.0.1."
                if wrong_host
                else "Choose another port with --port, or 0 for any free one."
            )
        ) from error
    return sock


def open_recording(config: ServeConfig) -> Recorder | None:
    """The recorder that was asked for. Raises `Unavailable` when its file cannot be opened."""
    if config.record is None:
        return None
    try:
        recorder = Recorder(config.record, with_text=config.record_text)
    except OSError as error:
        raise Unavailable(
            f"Cannot record to {config.record}: {error.strerror or error}. "
            "Name a file in a folder that can be written to."
        ) from error
    what = "prompts and answers" if config.record_text else "digests, no text"
    say(f"agentkv recording to {recorder.file.path} ({what})")
    return recorder


def address(sock: socket.socket) -> str:
    """The base URL of a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server, with signals left to `_serve`: it would end with the signal's status."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def make_server(app: Starlette, config: ServeConfig) -> Server:
    """A server for `app`; call `serve(sockets=[...])`."""
    return Server(
        uvicorn.Config(
            app,
            http=DeadlineProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
    )


async def _serve(
    app: Starlette,
    service: Service,
    sock: socket.socket,
    config: ServeConfig,
    problem: list[Exception],
) -> threading.Thread:
    """Serve until a signal, or until loading fails. Returns the thread that loads, or has loaded."""
    server = make_server(app, config)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            server.force_exit = True
            server.should_exit = True
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, on_signal)
    url = address(sock)
    say(f"agentkv listening on {url}, loading {config.engine.model}")

    def load() -> None:
        try:
            engine = make_engine(config)
        except Exception as error:
            service.phase = "failed"
            problem.append(error)
            loop.call_soon_threadsafe(stop.set)
            return
        service.attach(engine)
        say(f"agentkv serving {engine.model_name} on {url}")

    # A daemon: a signal during a long download must be able to end the process.
    loader = threading.Thread(target=load, name="agentkv-load", daemon=True)
    loader.start()
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not serving.done():
        await drain(service, config.drain_timeout, server)
        server.should_exit = True
    stopping.cancel()
    await serving
    return loader


async def drain(service: Service, seconds: float, server: uvicorn.Server | None = None) -> None:
    """Take no new calls; let those in flight finish for `seconds`, then abort them."""
    if service.phase in ("ready", "loading"):
        service.phase = "draining"
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    if service.in_flight:
        say(
            f"agentkv draining {service.in_flight} requests (up to {seconds:g} s; signal again to stop now)"
        )
    while service.in_flight and loop.time() < end and not (server and server.force_exit):
        await asyncio.sleep(0.05)
    if service.in_flight:
        service.abort(None)


def make_engine(config: ServeConfig) -> Engine:
    """Load the model (fetching the embedded one when it is missing)."""
    from agentkv.engine.engine import Engine

    return Engine(config.engine)


def say(text: str) -> None:
    """One line on stderr, at once."""
    print(text, file=sys.stderr, flush=True)
