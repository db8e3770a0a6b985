"""`RecordFile`: appends recordings to a file, and never breaks a call.

    with RecordFile("run.jsonl") as file:
        file.write(lambda: {"agentkv": 1, ...})

The file is made readable by its owner only, for digests of guessable text and names are in it, and
prompts where those were asked for. A line is one `write` to a file opened for appending, so several
threads and processes may share it. What cannot be written is counted in `lost` and told once.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import stat
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

log = logging.getLogger("agentkv.recording")

WAITING = 1000
"""Lines that may wait to be written in the background; more are lost, and counted."""

Make = Callable[[], Mapping[str, Any] | None]


class RecordFile:
    """`background`: lines are made and written on a thread of their own, so that the caller (an
    event loop) waits for neither; `close` waits for all of them.

    Raises OSError when the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], *, background: bool = False) -> None:
        self.path = Path(path).expanduser()
        self.lines = 0
        """Lines written."""
        self.lost = 0
        """Calls that could not be recorded."""
        self._lock = threading.Lock()
        self._told = False
        self._torn = False
        self._fd = -1
        self._fd = _open(self.path)
        self._torn = _ends_within_line(self.path)
        self._queue: queue.Queue[Make | None] | None = None
        self._thread: threading.Thread | None = None
        if background:
            self._queue = queue.Queue(WAITING)
            self._thread = threading.Thread(target=self._work, name="agentkv-record", daemon=True)
            self._thread.start()
        self._finalizer = _close_at_exit(self)

    def write(self, make: Make) -> None:
        """Record what `make` returns (None: nothing). Never raises."""
        if self._queue is None:
            self._write(make)
            return
        try:
            self._queue.put_nowait(make)
        except queue.Full:
            self._lose("the disk is slower than the calls")

    def close(self) -> None:
        """Write what waits, and close. Closing twice does nothing; a later `write` is lost."""
        thread = self._thread
        if self._queue is not None and thread is not None and thread.is_alive():
            self._queue.put(None)
            thread.join()
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        atexit.unregister(self._finalizer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def _work(self) -> None:
        assert self._queue is not None
        while (make := self._queue.get()) is not None:
            self._write(make)

    def _write(self, make: Make) -> None:
        try:
            record = make()
            if record is None:
                return
            line = _line(record)
        except Exception as error:
            # The error may quote a prompt: its kind is all that is told.
            self._lose(f"a line could not be made ({type(error).__name__})")
            return
        with self._lock:
            problem = "the file is closed" if self._fd < 0 else self._append(line)
        if problem:
            self._lose(problem)

    def _append(self, line: bytes) -> str | None:
        """Append one line; why it failed, if it did. With the lock."""
        data = b"\n" + line if self._torn else line
        try:
            done = os.write(self._fd, data)
        except OSError as error:
            return error.strerror or str(error)
        if done < len(data):
            # A full disk took a part of it. The next line begins on a line of its own.
            self._torn = True
            return "No space left on device"
        self._torn = False
        self.lines += 1
        return None

    def _lose(self, why: str) -> None:
        with self._lock:
            self.lost += 1
            told, self._told = self._told, True
        if not told:
            log.warning("%s: a call was not recorded: %s (told once; see `lost`)", self.path, why)


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    fd = os.open(path, flags, 0o600)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) and mode & 0o077 and os.name == "posix":
        log.warning("%s can be read by others (mode %03o)", path, stat.S_IMODE(mode))
    return fd


def _ends_within_line(path: Path) -> bool:
    """Whether an earlier writer was cut off."""
    try:
        if not path.is_file() or path.stat().st_size == 0:
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False  # may be written and not read: nothing is known


def _line(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair in a prompt
        text = json.dumps(record, separators=(",", ":"), default=str)
        return text.encode("ascii") + b"\n"


def _close_at_exit(file: RecordFile) -> Callable[[], None]:
    there = weakref.ref(file)

    def close() -> None:
        found = there()
        if found is not None:
            found.close()

    atexit.register(close)
    return close
