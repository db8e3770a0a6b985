"""Ranks: rank 0's side of a tensor-parallel engine, and the processes of the other ranks.

    engine's thread   commands, batches --socket--> rank i   (its own heads, the same slots)
                      exchanges of numbers <------> rank i   (parallel_group.py)
    watcher           <-- beats, answers, failures --

Rank 0 has the tree, the scheduler and the sampler; the others have weights and a pool, and do what they
are told. A step that fails on one rank leaves the others inside an exchange, so every failure ends the
engine: with the reason that the failing rank gave, not with the lost connection that others saw.
"""

from __future__ import annotations

import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentkv.engine.errors import EngineError, RankFailed
from agentkv.engine.run.parallel_facts import RankFacts
from agentkv.engine.run.parallel_group import PeerLost
from agentkv.engine.run.parallel_link import Kind, dumps, loads, pack, send
from agentkv.engine.run.parallel_process import RankProcess
from agentkv.engine.sched.batch import ForwardBatch

BEAT_SECONDS = 1.0
SILENT_SECONDS = 10.0
"""A rank that says nothing for so long is stopped or stuck, and is ended."""

LOADING_SECONDS = 120.0
"""The same while it starts and loads: reading a file may keep it from speaking."""

EXCHANGE_SECONDS = 60.0
"""How long a sum over the ranks may take, if all of them still speak."""

REASON_SECONDS = 2.0
"""How long to wait for the failing rank's own reason."""

CLOSE_SECONDS = 3.0


class Ranks:
    """Starts a process for each of `settings` (those of ranks 1, 2, ...), and watches them.

    `failed`: called once, from the watcher, when a rank is lost.
    """

    def __init__(
        self, settings: Sequence[dict[str, Any]], failed: Callable[[RankFailed], None]
    ) -> None:
        self.world = world = len(settings) + 1
        self.exchange_seconds = EXCHANGE_SECONDS
        self._failed = failed
        self._said = threading.Condition()
        self._telling = threading.Lock()
        self._failure: RankFailed | None = None
        self._closing = False
        self._patience = LOADING_SECONDS
        self._step = 0
        self.step_seconds: float | None = None
        """Longer than this no step takes; None where that is not known."""
        self.abort: Callable[[], None] = lambda: None
        """Ends exchanges that wait for a rank that is gone, where they do not end by themselves."""
        self._home = Path(tempfile.mkdtemp(prefix="agentkv-ranks-"))
        self._ranks: list[RankProcess] = []
        try:
            for rank in range(1, world):
                self._ranks.append(RankProcess(rank, SILENT_SECONDS, self._home))
        except BaseException:
            self._end()
            raise
        self._watcher = threading.Thread(target=self._watch, name="agentkv-ranks", daemon=True)
        self._watcher.start()
        common: dict[str, Any] = {
            "world": world,
            "beat": BEAT_SECONDS,
            "exchange": self.exchange_seconds,
            "meeting": str(self.meeting),
        }
        try:
            for one, own in zip(self._ranks, settings, strict=True):
                self._tell(one, Kind.SETTINGS, dumps(own | common | {"rank": one.rank}))
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the other ranks' processes."""
        return [one.process.pid for one in self._ranks]

    @property
    def failure(self) -> RankFailed | None:
        """Why the ranks no longer work, if so."""
        return self._failure

    @property
    def meeting(self) -> Path:
        """The file by which the ranks find each other; its directory is this user's alone."""
        return self._home / "meeting"

    def tell(self, kind: Kind, payload: bytes = b"") -> None:
        """A command to every other rank. Raises `RankFailed`."""
        self.tell_each(kind, [payload] * len(self._ranks))

    def tell_each(self, kind: Kind, payloads: Sequence[bytes]) -> None:
        """A command to every other rank, with what each is to have. From any thread; all ranks get
        the commands of all threads in one order. Raises `RankFailed`."""
        with self._telling:
            for one, payload in zip(self._ranks, payloads, strict=True):
                self._tell(one, kind, payload)

    def run(self, batch: ForwardBatch) -> None:
        """Have the other ranks run a batch. Rank 0 runs it at the same time."""
        self.tell(Kind.STEP, pack(self._step, batch))
        self._step += 1

    def wait(self, kind: Kind) -> list[bytearray]:
        """What every other rank says with its next `kind`. Raises `RankFailed` when one cannot."""
        with self._said:
            while not all(kind in one.said for one in self._ranks):
                self._must_live()
                self._said.wait(1.0)
            return [one.said.pop(kind) for one in self._ranks]

    def ready(self) -> list[bytearray]:
        """Wait until every rank has its pool; from then on silence is short. What they say of it."""
        found = self.wait(Kind.READY)
        with self._said:
            now = time.monotonic()
            for one in self._ranks:
                one.heard = now
            self._patience = SILENT_SECONDS
        return found

    def facts(self) -> list[RankFacts]:
        """What the other ranks have computed, as they say it."""
        self.tell(Kind.FACTS)
        return [RankFacts.of(loads(found)) for found in self.wait(Kind.FACTS)]

    def explain(self, error: BaseException) -> RankFailed:
        """Why something failed on rank 0: another rank's reason where there is one, else our own."""
        if isinstance(error, RankFailed):
            return error
        deadline = time.monotonic() + REASON_SECONDS
        with self._said:
            while self._failure is None and time.monotonic() < deadline:
                if not isinstance(error, PeerLost):
                    break
                self._said.wait(0.1)
            if self._failure is not None:
                return self._failure
            known = isinstance(error, EngineError)
            why = str(error) if known else f"{type(error).__name__}: {error}"
            self._failure = RankFailed(f"Rank 0 of {self.world} failed: {why}", rank=0)
            return self._failure

    def close(self) -> None:
        """End the other ranks. Closing twice does nothing."""
        with self._said:
            if self._closing:
                return
            self._closing = True
        for one in self._ranks:
            try:
                send(one.socket, Kind.CLOSE)
                one.socket.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it is gone already
        self._watcher.join()
        self._end()
        self.abort()  # a group that is left to itself waits for the others when it is collected

    # -- inside

    def _tell(self, one: RankProcess, kind: Kind, payload: bytes) -> None:
        self._must_live()
        try:
            send(one.socket, kind, payload)
        except OSError as error:
            lost = PeerLost(f"rank {one.rank} does not take what it is sent: {error}")
            raise self.explain(lost) from error

    def _must_live(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        """No process, no socket and no file is left."""
        deadline = time.monotonic() + (0 if self._failure else CLOSE_SECONDS)
        for one in self._ranks:
            one.end(deadline)
        shutil.rmtree(self._home, ignore_errors=True)

    def _watch(self) -> None:
        """Read what the ranks say; find out who is gone, or silent."""
        last = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for one in self._ranks:
                selector.register(one.socket, selectors.EVENT_READ, one)
            while not self._closing and self._failure is None:
                for key, _ in selector.select(0.1):
                    self._read(key.data)
                    if key.data.gone:
                        selector.unregister(key.fileobj)
                last = self._judge(last)

    def _judge(self, last: float) -> float:
        """End it all if a rank is lost. `last`: when this was asked before; returns now."""
        now = time.monotonic()
        if now - last > 2.0:
            # We slept, not they: this process was stopped, or had no processor.
            for one in self._ranks:
                one.heard = now
        found = self._lost(now)
        if found is not None and not self._closing:
            self._fail(found)
        return now

    def _read(self, one: RankProcess) -> None:
        try:
            data = one.socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            data = b""
        with self._said:
            one.take(data)
            self._said.notify_all()

    def _lost(self, now: float) -> RankFailed | None:
        """Why the ranks can no longer work together, once that is known well enough."""
        for one in self._ranks:
            if not one.gone and now - one.heard > self._patience:
                return self._failure_of(one, f"has said nothing for {self._patience:g} seconds")
            if self.step_seconds is not None and one.busy > self.step_seconds:
                return self._failure_of(one, f"has been in one step for {one.busy:.0f} seconds")
        lost = [one for one in self._ranks if one.lost]
        if not lost:
            return None
        # Who only saw an exchange fail points at somebody else: give that one a moment to be seen.
        known = [one for one in lost if not one.blames_another]
        if not known and now - min(one.heard for one in lost) < REASON_SECONDS / 2:
            return None
        one = (known or lost)[0]
        return self._failure_of(one, one.why())

    def _failure_of(self, one: RankProcess, why: str) -> RankFailed:
        return RankFailed(
            f"Rank {one.rank} of {self.world} (process {one.process.pid}) {why.rstrip('.')}.",
            rank=one.rank,
        )

    def _fail(self, failure: RankFailed) -> None:
        with self._said:
            if self._failure is not None:
                failure = self._failure
            self._failure = failure
            self._said.notify_all()
        for one in self._ranks:
            one.kill()  # who waits for it in an exchange learns that from its connection
        self.abort()
        self._failed(failure)
