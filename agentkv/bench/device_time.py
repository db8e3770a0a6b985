"""How long the device takes for something: by its own clock, with nothing of it in its cache.

Before each run the last-level cache is overwritten and the device is put to sleep for as long as the
host needs to queue the run, so that what is timed is the device's work and not the host's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

Work = Callable[[], object]

LEAST_FLUSH = 256 << 20
HERTZ = 2.0e9
"""About what a device's clock ticks at: turns seconds of sleep into ticks."""

MOST_SLEEP = 0.02


class Clock:
    """`seconds` of repetitions are spent on each measurement, at least `least`, at most `most` runs."""

    def __init__(
        self, device: torch.device, *, seconds: float = 0.15, least: int = 5, most: int = 50
    ) -> None:
        self.device = device
        self.seconds = seconds
        self.least = least
        self.most = most
        self._flush: torch.Tensor | None = None
        if device.type == "cuda":
            cache = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
            size = max(LEAST_FLUSH, 4 * cache)
            self._flush = torch.empty(size, dtype=torch.uint8, device=device)

    def time(self, work: Work) -> float:
        """Seconds of one run, the median. The first run, which may compile, is not counted."""
        work()
        self.wait()
        start = time.perf_counter()
        work()
        queued = time.perf_counter() - start
        self.wait()
        once = time.perf_counter() - start
        runs = min(self.most, max(self.least, int(self.seconds / max(once, 1e-7))))
        if self._flush is None:
            return statistics.median(_host_seconds(work) for _ in range(runs))
        ticks = int(min(MOST_SLEEP, 2 * queued + 1e-4) * HERTZ)
        marks = []
        for _ in range(runs):
            self._flush.zero_()
            torch.cuda._sleep(ticks)
            start_mark, end_mark = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start_mark.record()
            work()
            end_mark.record()
            marks.append((start_mark, end_mark))
        self.wait()
        return statistics.median(float(a.elapsed_time(b)) / 1e3 for a, b in marks)

    def wait(self) -> None:
        """Until the device has done what was queued."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _host_seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
