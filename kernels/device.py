"""Which way an operation goes, and for which architecture its kernel is laid out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

import torch

from agentkv.kernels.jit import triton

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Kernels run in Triton's interpreter, on CPU tensors. Fixed when Triton is imported."""

_compiling_for: ContextVar[str | None] = ContextVar("compiling_for", default=None)


def runs_triton(x: torch.Tensor) -> bool:
    """Whether an operation on x takes the Triton kernel; its torch reference otherwise.

    CUDA (and ROCm) tensors do where Triton is installed, CPU tensors only in the interpreter and
    while compiling ahead of time.
    """
    if triton is None:
        return False
    return x.is_cuda or INTERPRETED or _compiling_for.get() is not None


def arch_of(device: torch.device | str) -> str:
    """`sm_90`, `gfx942`, ..., or `interpreter`: the key of the tuning table."""
    target = _compiling_for.get()
    if target is not None:
        return target
    device = torch.device(device)
    return _arch(device.index) if device.type == "cuda" else "interpreter"


def _arch(index: int | None) -> str:
    found = _known.get(index)
    if found is None:
        facts = torch.cuda.get_device_properties(index if index is not None else "cuda")
        if torch.version.hip is not None:
            found = facts.gcnArchName.split(":")[0]
        else:
            found = f"sm_{facts.major}{facts.minor}"
        _known[index] = found
    return found


_known: dict[int | None, str] = {}


@contextlib.contextmanager
def compiling_for(target: str) -> Iterator[None]:
    """Inside, every operation lays its kernel out for `target`, whatever device its tensors are on."""
    token = _compiling_for.set(target)
    try:
        yield
    finally:
        _compiling_for.reset(token)


def native_fp8(arch: str) -> bool:
    """Whether the architecture converts e4m3 in hardware (NVIDIA from 8.9 on, CDNA 4)."""
    if arch.startswith("sm_"):
        return int(arch[3:]) >= 89
    return arch == "gfx950"
