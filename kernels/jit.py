"""Triton, or the fact that it is not installed.

A module with a kernel takes `jit` and `tl` from here, so that it can be imported without Triton: the
kernels are then plain functions that nothing calls, and every operation takes its torch reference.
"""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None


def jit(function: Any = None, *, varying: str = "", unaligned: str = "") -> Any:
    """`triton.jit`, or the function itself without Triton.

    Triton compiles a kernel anew for an argument that is 1, or a multiple of 16. That is meant for
    shapes; `varying` names numbers that change from batch to batch, and `unaligned` tensors that may
    begin anywhere, so that neither sets off a compilation while serving.
    """
    if triton is None:
        return function if function is not None else lambda decorated: decorated
    options = {
        "do_not_specialize": varying.split() or None,
        "do_not_specialize_on_alignment": unaligned.split() or None,
    }
    return triton.jit(function, **options)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
