"""Watches the interpreter's memory: every access inside a tensor of the launch, no write races.

Importing this module patches the interpreter (after `repair`). Each lane that a load, store or atomic
does not mask must fall into a tensor that was passed to the launch, and no two programs of a launch
may store to one address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

Builder = interpreter.InterpreterBuilder

_ranges: list[tuple[int, int]] = []
_stores: list[tuple[int, np.ndarray]] = []


class OutOfBounds(AssertionError):
    """An access outside of every tensor of the launch."""


class WriteRace(AssertionError):
    """Two programs store to one address."""


def tensors(values: Any) -> Any:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from tensors(value)
        elif isinstance(value, torch.Tensor):
            yield value


def check(pointers: Any, mask: Any, what: str) -> np.ndarray:
    """Addresses that are touched; raises `OutOfBounds`."""
    bits = np.asarray(mask if isinstance(mask, np.ndarray) else mask.data, bool)  # array: of a box
    used = pointers.data[np.broadcast_to(bits, pointers.data.shape)]
    if used.size:
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        inside = np.zeros(used.shape, bool)
        for low, high in _ranges:
            inside |= (used >= low) & (used + np.uint64(size) <= high)
        if not inside.all():
            raise OutOfBounds(f"{what}: {int((~inside).sum())} lanes outside of every argument")
    return used


def watch(name: str, mask_at: int, what: str, stores: bool) -> None:
    original = getattr(Builder, name)

    def method(self: Any, *args: Any, **named: Any) -> Any:
        used = check(args[0], args[mask_at], what)
        if stores and used.size:
            x, y, z = self.grid_idx
            _stores.append(((x * 65536 + y) * 65536 + z, np.unique(used)))
        return original(self, *args, **named)

    setattr(Builder, name, method)


def launch(self: Any, *args: Any, **named: Any) -> Any:
    _stores.clear()
    _ranges.clear()
    for tensor in tensors([*args, *named.values()]):
        if tensor.numel():  # the extent of this view, not of its storage
            items = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            start = tensor.data_ptr()
            _ranges.append((start, start + (items + 1) * tensor.element_size()))
    result = _original_launch(self, *args, **named)
    if _stores:
        where = np.concatenate([a for _, a in _stores])
        who = np.concatenate([np.full(len(a), p) for p, a in _stores])
        order = np.argsort(where, kind="stable")
        where, who = where[order], who[order]
        if ((where[1:] == where[:-1]) & (who[1:] != who[:-1])).any():
            raise WriteRace("two programs store to one address")
    return result


_original_launch = interpreter.GridExecutor.__call__
interpreter.GridExecutor.__call__ = launch
watch("create_masked_load", 1, "load", stores=False)
watch("create_masked_store", 2, "store", stores=True)
watch("create_atomic_rmw", 3, "atomic", stores=False)
