"""Find the fastest tiles on the device at hand, and write them as a tuning table.

For each kernel, head size and width of K/V, every candidate is run on a batch that is typical of the
kernel and timed by the device's own clock. A candidate that the device has no room for is left out.
Nothing of this happens while serving: point `AGENTKV_TUNING` at the file, or ship its rows.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from agentkv.kernels.cascade_attention import cascade_attention
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.device import arch_of
from agentkv.kernels.extend_attention import extend_attention
from agentkv.kernels.jit import triton
from agentkv.kernels.paged import Paged
from agentkv.kernels.tuning import BITS, HEAD_DIMS, KERNELS, Config, Key, pick, write

KV_DTYPES = {8: torch.float8_e4m3fn, 16: torch.bfloat16, 32: torch.float32}

Measure = Callable[[Key, Config], float]


def candidates(kernel: str) -> list[Config]:
    """What is tried."""
    rows = (16,) if kernel == "decode" else (32, 64, 128)
    grid = itertools.product(rows, (32, 64, 128), (4, 8), (1, 2, 3, 4))
    pieces = ((256, 64), (512, 64)) if kernel != "extend" else ((256, 64),)
    return [Config(m, n, w, s, *p) for (m, n, w, s), p in itertools.product(grid, pieces)]


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
        for config in (known, *candidates(kernel)):
            try:
                seconds = measure(key, config)
            except Unfit:
                continue
            if seconds < least:
                best[key], least = config, seconds
    write(path, best)
    return best


class Unfit(Exception):
    """The device cannot run a kernel laid out like this."""


class Measured:
    """Seconds of a kernel on the device: the median of `repeats` runs."""

    def __init__(
        self, device: str, *, seqs: int = 32, length: int = 4096, repeats: int = 10
    ) -> None:
        self.device = device
        self.seqs = seqs
        self.length = length
        self.repeats = repeats

    def __call__(self, key: Key, config: Config) -> float:
        run = self._case(key, config)
        failures = (
            triton.runtime.errors.OutOfResources,
            triton.compiler.errors.CompilationError,
        )
        try:
            run()
        except failures as error:
            raise Unfit(str(error)) from error
        seconds = []
        for _ in range(self.repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            seconds.append(start.elapsed_time(end) / 1e3)
        return statistics.median(seconds)

    def _case(self, key: Key, config: Config) -> Callable[[], object]:
        page, kv_heads, group = 16, 8, 4
        pages = self.length // page
        new = {"extend": self.length // 4}.get(key.kernel, 1)
        seqs = 4 if key.kernel == "extend" else self.seqs
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
        scale = key.head_dim**-0.5
        if key.kernel == "extend":
            return lambda: extend_attention(q, kv, paged, scale=scale, scales=scales, config=config)
        if key.kernel == "decode":
            return lambda: decode_attention(
                q, kv, paged, scale=scale, scales=scales, max_kv_len=self.length, config=config
            )
        own = Paged(step, step, table, last, page)
        shared = table[seqs : seqs + 2 * pages]
        return lambda: cascade_attention(
            q, kv, shared, own, scale=scale, shared_len=2 * self.length, max_kv_len=page,
            scales=scales, config=config,
        )  # fmt: skip
