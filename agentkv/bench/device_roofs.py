"""The two roofs of this device, measured now: what memory moves, and what matrix units multiply."""

from __future__ import annotations

import torch

from agentkv.bench.device_run import Run, Section


def measure(run: Run, section: Section) -> None:
    """Copy bandwidth (bytes read and written) and the best matrix rate over some sizes."""
    with run.case(section, "roofs: copy"):
        size = run.sizes.copy
        _add(section, "copy", f"{size >> 20} MiB", 2 * size, _copy(run, size), "GB/s")
    for size in run.sizes.matrix:
        with run.case(section, f"roofs: matrix {size}"):
            _add(section, "matrix", f"{size}^3", 2 * size**3, _product(run, size), "TFLOP/s")
    dtype = str(run.sizes.dtype).removeprefix("torch.")
    section.note(f"The matrix roof is torch.mm in {dtype}; the best of its sizes counts.")


def _copy(run: Run, size: int) -> float:
    source = torch.zeros(size, dtype=torch.uint8, device=run.device)
    target = torch.empty_like(source)
    return run.clock.time(lambda: target.copy_(source))


def _product(run: Run, size: int) -> float:
    a, b = (
        torch.empty((size, size), dtype=run.sizes.dtype, device=run.device).normal_() for _ in "ab"
    )
    out = torch.empty_like(a)
    return run.clock.time(lambda: torch.mm(a, b, out=out))


def _add(section: Section, roof: str, size: str, work: int, seconds: float, unit: str) -> None:
    rate = work / seconds
    section.add(
        roof=roof, size=size, ms=1e3 * seconds,
        rate=f"{rate / (1e9 if unit == 'GB/s' else 1e12):,.1f} {unit}", per_second=round(rate),
    )  # fmt: skip
