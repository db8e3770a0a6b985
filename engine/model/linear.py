"""Matrix products with fixed weights, packed once for the CPU's own kernels.

oneDNN's packed product is faster than torch's default at every row count, and treats its rows
alike from a small row count on: the same input row gives the same bits whatever stands around it.
That is what makes a cached answer equal a computed one. It is measured here, not assumed
(`least_rows`), since the kernels differ from CPU to CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.nn import functional

# Packing optimises for this many rows; any hint from 16 on gives row-independent kernels.
_PACK_ROWS = 512
# A probe is a few hundred small calls; on a busy machine each may cost milliseconds.
_PROBED_ROWS = (*range(1, 10), 12, 15, 16, 17, 31, 32, 33, 64, 65, 128)
_FUSED_ROWS = (1, 2, 3, 4, 7, 8, 16, 17, 33)
_LARGE = 1 << 22


def packing_available(dtype: torch.dtype) -> bool:
    """Whether this build and CPU have oneDNN's packed product for `dtype`."""
    try:
        weight = torch.zeros(16, 16, dtype=dtype)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)
        torch.ops.mkldnn._linear_pointwise(weight, packed, None, "none", [], "")
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True


class Linear:
    """`x @ weight.T + bias` for x `[rows, inputs]`, with what follows it fused where possible."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, packed: bool
    ) -> None:
        """weight: `[outputs, inputs]`. `packed`: use oneDNN (CPU, see `packing_available`)."""
        self.outputs, self.inputs = weight.shape
        self.dtype = weight.dtype
        self.device = weight.device
        self.packed = packed
        self._bias = bias
        self._weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS) if packed else weight
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self.packed:
            return functional.linear(x, self._weight, self._bias)
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return out

    def silu(self, x: torch.Tensor) -> torch.Tensor:
        """silu(self(x))"""
        if not self.packed:
            return functional.silu(self(x))
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "swish", [], ""
        )
        return out

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """self(x) + other"""
        if not self.packed:
            return self(x) + other
        return self._binary(x, other, "add")

    def times(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """self(x) * other"""
        if not self.packed:
            return self(x) * other
        return self._binary(x, other, "mul")

    def _binary(self, x: torch.Tensor, other: torch.Tensor, kind: str) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self._weight, self._bias, kind
        )
        return out


def least_rows(linears: Iterable[Linear]) -> int | None:
    """The least row count from which each row's result is independent of the others.

    Compares, for one layer of each shape, calls of many row counts with one large call. None when
    large counts still differ, that is, when no padding would help. Depends on the number of
    threads, so it must be called where the forward will run.
    """
    least = 1
    seen: set[tuple[int, int, bool]] = set()
    for linear in linears:
        shape = (linear.outputs, linear.inputs, linear._bias is not None)
        if shape in seen:
            continue
        seen.add(shape)
        found = _least(linear)
        if found is None:
            return None
        least = max(least, found)
    return least


def _least(linear: Linear) -> int | None:
    large = linear.outputs * linear.inputs >= _LARGE  # heads, mostly: tried plain, and less
    rows = _PROBED_ROWS[-1] if large else 2 * _PROBED_ROWS[-1]
    maker = torch.Generator().manual_seed(0)
    x = torch.randn(rows, linear.inputs, generator=maker).to(linear.device, linear.dtype)
    other = torch.randn(rows, linear.outputs, generator=maker).to(linear.device, linear.dtype)

    def differs(way: Callable[[slice], torch.Tensor], counts: Iterable[int]) -> int:
        """The largest row count whose rows are not those of the whole call, or 0."""
        whole, worst = way(slice(0, rows)), 0
        for count in counts:
            # Small calls at both ends of the input, so that a row's place is varied too.
            for low in (0, rows - count) if count <= 16 else (0,):
                part = slice(low, low + count)
                if not torch.equal(way(part), whole[part]):
                    worst = count
        return worst

    worst = differs(lambda part: linear(x[part]), _PROBED_ROWS)
    if not large:
        worst = max(
            worst,
            differs(lambda part: linear.plus(x[part], other[part]), _FUSED_ROWS),
            differs(lambda part: linear.silu(x[part]), _FUSED_ROWS),
        )
    return worst + 1 if worst < 64 else None
