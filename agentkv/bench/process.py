"""A real server in a process of its own, and how much memory it has."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_URL = re.compile(r"on (http://\S+:\d+)")


class ServerProcess:
    """`agentkv serve MODEL --port 0 ...` as a child. A context manager; `url` is where it listens."""

    def __init__(self, model: str, flags: Sequence[str], *, ready_within: float = 120.0) -> None:
        start = "from agentkv.cli.main import main; main()"
        command = [sys.executable, "-c", start, "serve", model, "--port", "0", *flags]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._lines: deque[str] = deque(maxlen=200)
        self._found = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + ready_within
        while not self._found.wait(0.1):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"the server did not start:\n{self.log}")

    @property
    def log(self) -> str:
        """The last lines of what the server wrote to stderr."""
        return "".join(self._lines)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def rss_mib(self) -> float:
        """Resident memory of the server, in MiB."""
        return resident_mib(self._process.pid)

    def stop(self) -> int | None:
        """Ask it to stop, insist after ten seconds. Returns its exit status."""
        if self.alive:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._reader.join(5)
        return self._process.returncode

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if (match := _URL.search(line)) and not self._found.is_set():
                self.url = match.group(1)
                self._found.set()


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB, from /proc, or from `ps` where there is none."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        return int(found.group(1)) / 1024 if found else 0.0
    out = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(out.stdout.strip() or 0) / 1024
