"""Worker: the one thread that computes, and the commands that others leave for it.

A command runs between two steps. Those that are there at the same time run together, before the next
step: calls that arrive while one computes are planned together.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

import torch

from agentkv.engine.errors import EngineClosed

log = logging.getLogger("agentkv.engine")

WAIT = 0.05
"""Seconds between looks at work that can only wait for a transfer (whose end also wakes the thread)."""

Command = Callable[[], None]
T = TypeVar("T")


class Work(Protocol):
    """What the thread does when there is nothing to be told."""

    @property
    def idle(self) -> bool: ...

    def step(self) -> bool:
        """Do a piece of it. False when nothing of it can be done now."""
        ...

    def shut_down(self, error: EngineClosed, take: Callable[[], deque[Command]]) -> None:
        """The last thing that is asked. `error`: why, for the calls that did not end. `take`: what was
        posted meanwhile."""
        ...


class Worker:
    """Starts at once. `load(worker)` makes the work, on the thread; `ready` waits for it."""

    def __init__(self, load: Callable[[Worker], Work]) -> None:
        self.lock = threading.Condition()
        """Held while commands are left, and while something is checked that must still hold then."""
        self._load = load
        self._commands: deque[Command] = deque()
        self._closing = False
        self._dead: BaseException | None = None
        self._failure: BaseException | None = None
        self._ready: Future[None] = Future()
        self.thread = threading.Thread(target=self._run, name="agentkv-engine", daemon=True)
        self.thread.start()

    def ready(self) -> None:
        """Returns once the work is there; raises what kept it from coming."""
        try:
            self._ready.result()
        except KeyboardInterrupt:
            self._closing = True  # as soon as it has loaded: nobody is left to close it
            raise

    @property
    def alive(self) -> bool:
        return not self._closing and self._dead is None

    @property
    def broken(self) -> bool:
        """The thread ended by a fault."""
        return self._dead is not None

    def post(self, command: Command) -> None:
        """Have `command` run between two steps."""
        with self.lock:
            self._commands.append(command)
            self.lock.notify()

    def ask(self, work: Callable[[], T]) -> T:
        """Run `work` between two steps, and return its result. Raises `EngineClosed`."""
        future: Future[T] = Future()

        def command() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        with self.lock:
            self.must_run()
            self.post(command)
        return future.result()

    def must_run(self) -> None:
        """Raises `EngineClosed` unless commands are still carried out. Hold the lock."""
        if not self.alive:
            why = "is closed" if self._dead is None else f"failed: {self._why()}"
            raise EngineClosed(f"The engine {why}; create a new one.") from self._dead

    def fail(self, failure: BaseException) -> None:
        """From another thread: the worker, if it is not in a step that fails by itself, ends."""
        with self.lock:
            self._failure = failure
            self.lock.notify()

    def close(self) -> None:
        """End the thread, and wait for it unless it is the caller. Closing twice does nothing."""
        with self.lock:
            self._closing = True
            self.lock.notify()
        if self.thread is not threading.current_thread():
            self.thread.join()

    # -- on the thread

    def _run(self) -> None:
        try:
            work = self._load(self)
        except BaseException as error:
            self._closing = True
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        try:
            with torch.inference_mode():
                self._loop(work)
        except BaseException as error:
            log.exception("the engine's worker failed")
            self._dead = error
        finally:
            self._end(work)

    def _loop(self, work: Work) -> None:
        while True:
            with self.lock:
                while not (self._commands or self._closing or self._failure) and work.idle:
                    self.lock.wait()
                commands, self._commands = self._commands, deque()
                closing = self._closing
            for command in commands:
                command()
            if closing:
                return
            if self._failure is not None:
                raise self._failure
            if not work.step() and not work.idle:
                # What waits waits for a transfer, which wakes us when it has ended.
                with self.lock:
                    if not (self._commands or self._closing):
                        self.lock.wait(WAIT)

    def _end(self, work: Work) -> None:
        with self.lock:
            self._closing = True
        error = EngineClosed(
            "The engine was closed while the call ran."
            if self._dead is None
            else f"The engine failed while the call ran: {self._why()}."
        )
        error.__cause__ = self._dead
        # Calls that had not started end with the others; questions get their answer.
        for command in self._take():
            try:
                command()
            except Exception:  # the calls must be told all the same
                log.exception("a command failed while the engine closed")
        work.shut_down(error, self._take)

    def _take(self) -> deque[Command]:
        with self.lock:
            commands, self._commands = self._commands, deque()
        return commands

    def _why(self) -> str:
        return str(self._dead).rstrip(".") or type(self._dead).__name__
