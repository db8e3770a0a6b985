"""The worker's end: whatever fails on the way, those who wait are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from agentkv.engine.errors import EngineClosed
from agentkv.engine.worker import Command, Worker


class Broken:
    """Its first step fails, and so does what was left for it meanwhile."""

    idle = False

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.told: EngineClosed | None = None

    def step(self) -> bool:
        self.worker.post(self.fail)
        raise RuntimeError("the step")

    def fail(self) -> None:
        raise RuntimeError("the command")

    def shut_down(self, error: EngineClosed, take: Callable[[], deque[Command]]) -> None:
        self.told = error


def test_a_command_that_fails_at_the_end_keeps_nobody_waiting() -> None:
    made: list[Broken] = []

    def load(worker: Worker) -> Broken:
        made.append(Broken(worker))
        return made[0]

    worker = Worker(load)
    worker.ready()
    worker.thread.join(30)
    assert not worker.thread.is_alive() and worker.broken
    told = made[0].told
    assert told is not None and "the step" in str(told)
    with pytest.raises(EngineClosed, match="the step"):
        worker.ask(lambda: None)
