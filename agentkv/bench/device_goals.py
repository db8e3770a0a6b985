"""The goals for one H200, judged by what a run measured.

They are shares of roofs that the same run measured, or ratios, so that they hold for other cards as
well; the one absolute number, operations a second of prefill attention, is an H100's or H200's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.bench.device_run import Section

Row = Mapping[str, Any]
Rows = Sequence[Row]

NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """`value` picks the number out of a section's rows, or None where it was not measured."""

    name: str
    section: str
    value: Callable[[Rows], float | None]
    limit: float
    at_most: bool = False
    unit: str = ""

    def met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    @property
    def target(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}{self.unit}"


def _numbers(rows: Iterator[Row], key: str) -> list[float]:
    return [row[key] for row in rows if row.get(key) is not None]


def _least(key: str, where: Callable[[Row], bool]) -> Callable[[Rows], float | None]:
    return lambda rows: min(_numbers(filter(where, rows), key), default=None)


def _most(key: str, where: Callable[[Row], bool]) -> Callable[[Rows], float | None]:
    return lambda rows: max(_numbers(filter(where, rows), key), default=None)


def _decode(page: int) -> Callable[[Rows], float | None]:
    return _least(
        "of_copy",
        lambda r: (r["kv"], r["page"], r["batch"], r["length"]) == ("bfloat16", page, 64, 4096),
    )


def _fp8_gain(rows: Rows) -> float | None:
    """The least gain among the batches that are bound by K/V: 64 sequences of 4096 and more."""
    ms = {(r["kv"], r["page"], r["batch"], r["length"]): r["ms"] for r in rows}
    gains = [
        value / ms["fp8", *shape]
        for (kv, *shape), value in ms.items()
        if kv == "bfloat16" and shape[0] == 16 and shape[1] * shape[2] >= 64 * 4096
        and ("fp8", *shape) in ms
    ]  # fmt: skip
    return min(gains, default=None)


def _prefill(row: Row) -> bool:
    return (row["kv"], row["page"]) == ("bfloat16", 16) and int(row["new"]) >= 4096


def _by_graph(row: Row) -> bool:
    return bool(row["setting"] == "default" and row["by_graph"] >= 0.99)


GOALS = (
    Goal("decode, 64 x 4k, page 16: share of copy", "kernels/decode", _decode(16), 0.85),
    Goal("decode, 64 x 4k, page 1: share of copy", "kernels/decode", _decode(1), 0.70),
    Goal("decode, FP8 against bfloat16, K/V-bound", "kernels/decode", _fp8_gain, 1.7, unit="x"),
    Goal(
        "extend, 4k new tokens and more", "kernels/extend", _least("tflop_per_s", _prefill), 350,
        unit=" TFLOP/s",
    ),
    Goal(
        "extend against SDPA's flash backend", "kernels/extend", _least("vs_sdpa", _prefill), 0.9,
        unit="x",
    ),
    Goal(
        "cascade, 64 sharing 8k: share of its bound", "kernels/cascade",
        _least("of_bound", lambda r: (r["batch"], r["prefix"]) == (64, 8192)), 0.6,
    ),
    Goal(
        "cascade against flat, wherever it is taken", "kernels/cascade",
        _least("gain", lambda r: r["taken"] == "yes"), 0.97, unit="x",
    ),
    Goal(
        "decoding step by graph against its kernels", "engine/decode",
        _most("step_of_kernels", _by_graph), 1.25, at_most=True, unit="x",
    ),
    Goal(
        "first token of 8k, cached against cold", "engine/ttft",
        _most("ratio", lambda r: r["setting"] == "default"), 0.05, at_most=True,
    ),
)  # fmt: skip
"""Must-show 4 of the GPU engine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`value` is None where the run has no number for it; `met` is then False."""

    goal: Goal
    value: float | None

    @property
    def met(self) -> bool:
        return self.value is not None and self.goal.met(self.value)

    @property
    def said(self) -> str:
        return NOT_MEASURED if self.value is None else f"{self.value:.3g}{self.goal.unit}"


def judge(found: Mapping[str, Section]) -> list[Verdict]:
    """The goals whose sections there are."""
    return [Verdict(g, g.value(found[g.section].rows)) for g in GOALS if g.section in found]


def wrong(found: Mapping[str, Section]) -> list[str]:
    """Measurements of kernels whose answers were not those of their references."""
    return [
        f"{name}: {_label(row)} (error {row['error']:.2g})"
        for name, section in found.items()
        for row in section.rows
        if row.get("right") is False
    ]


def _label(row: Row) -> str:
    keys = ("kernel", "kv", "page", "batch", "length", "new", "before", "prefix")
    return ", ".join(f"{k} {row[k]}" for k in keys if k in row)
