"""Where grammars are built: on threads with a large stack, and with a limit in time.

The grammar engine walks definitions by recursion, about 5 KB of stack for a level; a schema of the
allowed size can be some thousand levels deep, which an ordinary thread's 8 MB do not hold.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

BUILDERS = 2
STACK_BYTES = 256 * 1024 * 1024
"""Of addresses; memory is used only as far as the recursion goes."""
TIME_LIMIT = 5.0

_jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
_threads: list[threading.Thread] = []
_lock = threading.Lock()


def build(work: Callable[[], T], timeout: float = TIME_LIMIT) -> T:
    """Run `work` on a builder and wait for it. `TimeoutError` after `timeout` seconds, waiting for
    a free builder included; work that has begun then goes on by itself and is forgotten."""
    _start()
    future: Future[T] = Future()
    _jobs.put((work, future))
    try:
        return future.result(timeout)
    except TimeoutError:
        future.cancel()
        raise


def _start() -> None:
    with _lock:
        alive = [t for t in _threads if t.is_alive()]  # none of them is after a fork
        if len(alive) == BUILDERS:
            return
        before = threading.stack_size(STACK_BYTES)
        try:
            for index in range(len(alive), BUILDERS):
                thread = threading.Thread(
                    target=_work, name=f"agentkv-grammar-{index}", daemon=True
                )
                thread.start()
                alive.append(thread)
        finally:
            threading.stack_size(before)
        _threads[:] = alive


def _work() -> None:
    while True:
        work, future = _jobs.get()
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
        del work, future
