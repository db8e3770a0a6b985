"""`agentkv serve` as a process: the port, the two addresses, draining, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from agentkv.engine.serve.config import ServeConfig
from agentkv.engine.serve.run import bind

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tiny_llama_dir: Path) -> Iterator[Start]:
    """Run `agentkv serve TINY ...`; what still runs at the end is killed."""
    made: list[subprocess.Popen[str]] = []

    def begin(*flags: str, model: str | None = None) -> subprocess.Popen[str]:
        code = "from agentkv.cli.main import main; main()"
        command = [sys.executable, "-c", code, "serve", model or str(tiny_llama_dir), *flags]
        environment = {k: v for k, v in os.environ.items() if k != "AGENTKV_API_KEY"}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        made.append(process)
        return process

    yield begin
    for process in made:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        assert process.stderr is not None
        process.stderr.close()


def line_with(stream: IO[str] | None, word: str) -> str:
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if word in line:
            return line
    raise AssertionError(seen)


def test_serve_from_loading_to_drained(start: Start) -> None:
    process = start("--port", "0", "--served-name", "tiny", "--threads", "1")
    line = line_with(process.stderr, "listening on")
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found
    url = found.group()
    # Bound and answering before the model is there.
    assert httpx.get(url + "/health").status_code == 200
    early = httpx.get(url + "/ready")
    assert early.status_code == 503
    assert early.json()["error"]["code"] == "server_loading"
    assert f"serving tiny on {url}" in line_with(process.stderr, "serving")
    assert httpx.get(url + "/ready").status_code == 200

    body = {"prompt": "abc", "max_tokens": 400, "ignore_eos": True}
    lines: list[str] = []

    def read() -> None:
        with httpx.stream(
            "POST", url + "/v1/completions", json={**body, "stream": True}, timeout=60
        ) as reply:
            lines.extend(x for x in reply.iter_lines() if x)

    reader = threading.Thread(target=read)
    reader.start()
    while not lines and reader.is_alive():
        if httpx.get(url + "/server_info").json()["num_requests_running"]:
            break
    process.send_signal(signal.SIGTERM)
    reader.join(60)
    assert process.wait(30) == 0
    # The stream that was under way came to its own end.
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2][6:])["choices"][0]["finish_reason"] == "length"


def test_what_does_not_finish_in_time_is_aborted(start: Start) -> None:
    process = start("--port", "0", "--drain-timeout", "0.3", "--threads", "1")
    url = line_with(process.stderr, "serving").split()[-1]
    body = {"prompt": "abc", "max_tokens": 2040, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=60) as reply:
        lines = reply.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        rest = [x for x in lines if x]
    assert '"finish_reason":"abort"' in "".join(rest)
    assert process.wait(30) == 0


def test_a_reply_does_not_wait_for_an_acknowledgement() -> None:
    """asyncio turns Nagle's algorithm off where a socket says that its protocol is TCP."""

    async def serve() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        bound = bind(ServeConfig(port=0))
        async with await asyncio.start_server(met, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            result = await asyncio.wait_for(found, 10)
            writer.close()
        return result

    assert asyncio.run(serve()) == 1


def test_a_signal_while_loading_ends_it(start: Start) -> None:
    process = start("--port", "0")
    line_with(process.stderr, "listening on")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(30) == 0
    assert time.monotonic() - began < 15


def test_refusals_say_what_to_do(start: Start, tmp_path: Path) -> None:
    def ended(*flags: str, **how: Any) -> tuple[int, str]:
        process = start(*flags, **how)
        _, said = process.communicate(timeout=60)
        return process.returncode, said

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, said = ended("--port", str(taken.getsockname()[1]))
        assert status == 3 and "--port" in said and "Traceback" not in said
    status, said = ended("--host", "192.0.2.1", "--insecure-no-auth", "--port", "0")
    assert status == 3 and "--host" in said and "--port" not in said and "Traceback" not in said
    status, said = ended("--host", "0.0.0.0", "--port", "0")
    assert status == 2 and "--api-key-file" in said and "Traceback" not in said
    status, said = ended("--port", "0", model=str(tmp_path))
    assert status == 3 and "Traceback" not in said
    status, said = ended("--page-size", "7", "--port", "0")
    assert status == 2 and "page_size" in said
