"""The logs that a command was given: read as often as a command needs, though a pipe is read once."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from agentkv.trace.call import Call, Where
from agentkv.trace.readers import Problems, read
from agentkv.trace.readers.files import STDIN, is_pipe, name_of
from agentkv.trace.threads import Threads

_EVERY = 0.2
"""Seconds between two words of progress."""


class Logs:
    """Use it as a context: what comes through a pipe is kept in a temporary file until its end.

    `session`: only the calls of this session, as the log names it or as it was inferred (`#3`).
    `problems` is the account of the first reading; the later ones see the same lines again.

    Raises LogError, when it is entered or first read, for a log that cannot be opened.
    """

    def __init__(
        self, paths: Sequence[str], *, format: str | None = None, session: str | None = None
    ) -> None:
        self.names = [name_of(p) for p in paths]
        self.problems = Problems()
        self._paths: list[str] = list(paths)
        self._format = format
        self._session = session
        self._renamed: dict[str, str] = {}
        self._open = ExitStack()
        self._passes = 0

    def __enter__(self) -> Logs:
        for i, path in enumerate(self._paths):
            if is_pipe(path):
                self._paths[i] = self._kept(path)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def _kept(self, path: str) -> str:
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="agentkv-")))
        to = folder / "log"
        with to.open("wb") as out:
            if path == "-":
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                with Path(path).open("rb") as pipe:
                    shutil.copyfileobj(pipe, out)
        self._renamed[str(to)] = STDIN if path == "-" else path
        return str(to)

    def __call__(self) -> Iterator[Call]:
        """All calls, from the start."""
        account = self.problems if self._passes == 0 else Problems()
        self._passes += 1
        calls = read(self._paths, format=self._format, problems=account)
        return self._each(calls, account)

    def _each(self, calls: Iterator[Call], account: Problems) -> Iterator[Call]:
        threads = Threads() if self._session is not None else None
        progress = _Progress(self._passes)
        try:
            for number, call in enumerate(calls, 1):
                progress.at(number)
                name = self._renamed.get(call.where.file)
                if name is not None:
                    call = replace(call, where=Where(name, call.where.line))
                if threads is not None:
                    if threads.place(call).session != self._session:
                        continue
                    call = replace(call, session=self._session)
                yield call
        finally:
            progress.end()
            self._name_problems(account)

    def _name_problems(self, account: Problems) -> None:
        for kept in (account.first, account.first_notes):
            for i, problem in enumerate(kept):
                name = self._renamed.get(problem.file)
                if name is not None:
                    kept[i] = replace(problem, file=name)

    def notes(self) -> list[str]:
        """What was read but is less than all, and what was stepped over, in a sentence each."""
        said = []
        for kind, n in self.problems.notes.most_common(5):
            first = next((p for p in self.problems.first_notes if p.kind == kind), None)
            said.append(f"{kind}: {n:,}" + (f"; first {first}" if first is not None else ""))
        skipped = self.problems.skipped
        if skipped:
            kinds = ", ".join(f"{n:,} {kind}" for kind, n in skipped.most_common(5))
            said.append(f"Stepped over, no model calls: {kinds}.")
        return said


class _Progress:
    """How far a reading is, on standard error, where somebody watches."""

    def __init__(self, number: int) -> None:
        self._on = sys.stderr.isatty()
        self._said = False
        self._next = time.monotonic() + 1.0
        self._pass = "" if number == 1 else f" (pass {number})"

    def at(self, calls: int) -> None:
        if self._on and calls % 64 == 0 and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._said = True
            print(f"\r{calls:,} calls{self._pass}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._said:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._said = False
