"""One run of `bench device`: what its sections share, and what a section gives back."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from agentkv.bench.check import progress
from agentkv.bench.device_sizes import Sizes
from agentkv.bench.device_time import Clock


class OutOfTime(Exception):
    """The run's seconds are spent; what was measured is kept."""


@dataclass(slots=True)
class Section:
    """Rows of one kind. `complete`: nothing was left out for want of time. `failures`: what could not
    be measured, and why."""

    name: str
    title: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False

    @property
    def done(self) -> bool:
        """Whether there is nothing to repeat."""
        return self.complete and not self.failures

    def add(self, **row: Any) -> None:
        self.rows.append(row)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "complete": self.complete,
            "seconds": round(self.seconds, 2),
            "rows": self.rows,
            "notes": self.notes,
            "failures": self.failures,
        }

    @classmethod
    def of(cls, name: str, value: dict[str, Any]) -> Section:
        return cls(
            name, value["title"], value["rows"], value["notes"], value["failures"],
            value["seconds"], value["complete"],
        )  # fmt: skip


@dataclass(slots=True)
class Run:
    """`deadline`: on `time.monotonic`'s clock, or None. `peers`: also measure SDPA and FlashInfer.
    `found`: the sections that there are so far, by name."""

    device: torch.device
    sizes: Sizes
    clock: Clock
    deadline: float | None = None
    peers: bool = True
    seed: int = 0
    found: dict[str, Section] = field(default_factory=dict)

    @contextmanager
    def case(self, section: Section, what: str) -> Iterator[None]:
        """One measurement: says what comes next, and an error in it ends only it.

        Raises `OutOfTime` when there is no time for it.
        """
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise OutOfTime(what)
        progress(what)
        before = len(section.failures)
        try:
            yield
        except OutOfTime:
            raise
        except Exception as error:  # a kernel that this device refuses must not hide the others
            first = (str(error).splitlines() or [""])[0]
            section.failures.append(f"{what}: {type(error).__name__}: {first[:200]}")
            progress(f"failed: {section.failures[-1]}")
        if len(section.failures) > before:
            gc.collect()  # what the error's frames held on to

    def roof(self, name: str) -> float | None:
        """A roof of this run: `copy` in bytes a second, `matrix` in operations a second."""
        section = self.found.get("roofs")
        values = [r["per_second"] for r in (section.rows if section else ()) if r["roof"] == name]
        return max(values) if values else None

    def share(self, rate: float, roof: str) -> float | None:
        """`rate` as a part of a roof."""
        top = self.roof(roof)
        return rate / top if top else None

    def fits(self, size: int) -> bool:
        """Whether so many bytes can be had on the device, with room for what goes with them."""
        if self.device.type != "cuda":
            return True
        torch.cuda.empty_cache()
        return size < 0.85 * torch.cuda.mem_get_info(self.device)[0]
