"""Find the fastest tiles on the device at hand, and write them as a tuning table.

For each kernel, head size and width of K/V, every candidate is run on a batch that is typical of the
kernel and timed by the device's own clock. Left out is what the device has no room for, and what gives
other numbers than the default tiles do. Where there is a TMA unit, boxes are tried beside pointers.
Nothing of this happens while serving: point `AGENTKV_TUNING` at the file, or ship its rows.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from agentkv.kernels.boxes import has_boxes
from agentkv.kernels.cascade_attention import cascade_attention
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.device import arch_of
from agentkv.kernels.extend_attention import extend_attention
from agentkv.kernels.jit import triton
from agentkv.kernels.paged import Paged
from agentkv.kernels.tuning import BITS, HEAD_DIMS, KERNELS, Config, Key, pick, write

KV_DTYPES = {8: torch.float8_e4m3fn, 16: torch.bfloat16, 32: torch.float32}

Measure = Callable[[Key, Config], float]
Case = Callable[[Config], torch.Tensor]

PAGES = (16, 1, 32, 64)
"""Tokens. A row of the table is for all sizes, and the first is measured; how much room boxes take
depends on the size, so the fastest have to work with the others too."""


def candidates(kernel: str, *, tma: bool = False) -> list[Config]:
    """What is tried; with `tma` boxes too."""
    rows = (16,) if kernel == "decode" else (32, 64, 128)
    grid = itertools.product(rows, (32, 64, 128), (4, 8), (1, 2, 3, 4))
    pieces = ((256, 64), (512, 64)) if kernel != "extend" else ((256, 64),)
    found = [Config(m, n, w, s, *p) for (m, n, w, s), p in itertools.product(grid, pieces)]
    if tma:
        # A box is a small operand, so fewer warps; and copies without a stage ahead gain nothing.
        warps = (2, 4) if kernel == "decode" else (4, 8)
        boxed = itertools.product(rows, (32, 64, 128), warps, (2, 3, 4), pieces)
        found += [Config(m, n, w, s, *p, tma=True) for m, n, w, s, p in boxed]
    return found


def tune_kernels(
    path: Path,
    *,
    device: str = "cuda",
    kernels: Iterable[str] = KERNELS,
    head_dims: Iterable[int] = HEAD_DIMS,
    bits: Iterable[int] = BITS,
    measure: Measure | None = None,
) -> dict[Key, Config]:
    """Measure, write the rows to `path`, and return them. `measure(key, config)` gives seconds and
    raises `Unfit` for what cannot run; without it the device is measured."""
    if measure is None and not torch.cuda.is_available():
        raise RuntimeError("tuning measures a GPU, and torch sees none here")
    arch, measure = arch_of(device), measure or Measured(device)
    best: dict[Key, Config] = {}
    for kernel, dim, width in itertools.product(kernels, head_dims, bits):
        key, least = Key(kernel, arch, dim, width), math.inf
        q_dtype = torch.float32 if width == 32 else torch.bfloat16
        # What the table has goes first, and stays unless something is faster.
        known = pick(kernel, arch, dim, KV_DTYPES[width], q_dtype)
        # Of float32 a box is too much for the registers, whatever the tile.
        boxes = has_boxes(arch) and width < 32
        for config in (known, *candidates(kernel, tma=boxes)):
            try:
                seconds = measure(key, config)
            except Unfit:
                continue
            if seconds < least:
                best[key], least = config, seconds
    write(path, best)
    return best


class Unfit(Exception):
    """The device cannot run a kernel laid out like this, or not rightly."""


class Measured:
    """Seconds of a kernel on the device: the median of `repeats` runs."""

    def __init__(
        self, device: str, *, seqs: int = 32, length: int = 4096, repeats: int = 10
    ) -> None:
        self.device = device
        self.seqs = seqs
        self.length = length
        self.repeats = repeats
        self._cases: dict[tuple[Key, int], tuple[Case, torch.Tensor]] = {}
        self._least: dict[Key, float] = {}

    def __call__(self, key: Key, config: Config) -> float:
        first, *others = PAGES
        seconds = self.seconds(self.check(key, config, first), config)
        if seconds < self._least.get(key, math.inf):
            for page in others if config.tma else ():
                self.check(key, config, page)
            self._least[key] = seconds
        return seconds

    def check(self, key: Key, config: Config, page: int) -> Case:
        """The kernel on a batch of such pages, run once. Raises `Unfit`."""
        failures = (
            triton.runtime.errors.OutOfResources,
            triton.compiler.errors.CompilationError,
        )
        run, right = self._case(key, page)
        try:
            found = run(config)
        except failures as error:
            raise Unfit(str(error)) from error
        off = float((found.float() - right).abs().max() / right.abs().max())
        if not off < 0.02:  # NaN too
            raise Unfit(f"off by {off:.3f} of the largest number, with pages of {page}")
        return run

    def seconds(self, run: Case, config: Config) -> float:
        """The device's clock over a run."""
        seconds = []
        for _ in range(self.repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run(config)
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
        return statistics.median(seconds)

    def _case(self, key: Key, page: int) -> tuple[Case, torch.Tensor]:
        """The kernel on a batch, and what it should give there, float32."""
        if (key, page) not in self._cases:
            if any(known != key for known, _ in self._cases):
                self._cases.clear()  # a batch takes up to some gigabytes
            run = self._batch(key, page)
            q_dtype = torch.float32 if key.bits == 32 else torch.bfloat16
            safe = pick(key.kernel, "default", key.head_dim, KV_DTYPES[key.bits], q_dtype)
            self._cases[key, page] = run, run(safe).float()
        return self._cases[key, page]

    def _batch(self, key: Key, page: int) -> Case:
        kv_heads, group = 8, 4
        pages = self.length // page
        new = {"extend": self.length // 4}.get(key.kernel, 1)
        seqs = min(4, self.seqs) if key.kernel == "extend" else self.seqs
        q_dtype = torch.float32 if key.bits == 32 else torch.bfloat16
        shape = (2, seqs * self.length, kv_heads, key.head_dim)
        kv = torch.randn(shape, dtype=torch.bfloat16, device=self.device).to(KV_DTYPES[key.bits])
        scales = torch.ones((2, kv_heads), device=self.device) if key.bits == 8 else None
        heads = kv_heads * group
        q = torch.randn((seqs * new, heads, key.head_dim), device=self.device).to(q_dtype)
        step = torch.arange(seqs + 1, dtype=torch.int32, device=self.device)
        table = torch.randperm(seqs * pages, device=self.device).int()
        last = torch.full((seqs,), page, dtype=torch.int32, device=self.device)
        paged = Paged(step * new, step * pages, table, last, page)
        rule: dict[str, Any] = {"scale": key.head_dim**-0.5, "scales": scales}
        if key.kernel == "extend":
            return lambda config: extend_attention(q, kv, paged, config=config, **rule)[0]
        if key.kernel == "decode":
            return lambda config: decode_attention(
                q, kv, paged, max_kv_len=self.length, config=config, **rule
            )[0]
        own = Paged(step, step, table, last, page)
        shared = table[seqs : seqs + 2 * pages]
        return lambda config: cascade_attention(
            q,
            kv,
            shared,
            own,
            shared_len=page * len(shared),
            max_kv_len=page,
            config=config,
            **rule,
        )[0]
