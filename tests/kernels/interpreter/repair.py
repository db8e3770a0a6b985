"""Makes Triton's interpreter compute with bfloat16 and FP8.

It keeps them as unsigned integers: their arithmetic and their dots work on bit patterns, and casts to
them truncate. Here, operands are widened to float32 first and results narrowed again, with torch's
casts as the rule (round to nearest even; FP8 saturates, as the hardware's cast does). Reductions of
such tensors are not repaired: kernels reduce in float32.

Importing this module patches the interpreter, so it belongs into a process of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

Builder = interpreter.InterpreterBuilder
Handle = interpreter.TensorHandle

NARROW = {
    tl.bfloat16: (torch.bfloat16, torch.int16, np.uint16),
    tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8, np.uint8),
}


def is_narrow(x: Any) -> bool:
    return isinstance(x, Handle) and x.dtype.scalar in NARROW


def widened(data: np.ndarray, kind: Any) -> np.ndarray:
    """float32 values of raw bits."""
    dtype, carrier, bits = NARROW[kind]
    raw = np.ascontiguousarray(data).view(bits)
    signed = raw.view(np.int16) if bits is np.uint16 else raw
    return torch.from_numpy(signed.copy()).view(carrier).view(dtype).float().numpy()


def narrowed(values: np.ndarray, kind: Any) -> np.ndarray:
    """Raw bits of float32 values."""
    dtype, carrier, bits = NARROW[kind]
    wide = torch.from_numpy(np.array(values, dtype=np.float32))
    if dtype == torch.float8_e4m3fn:
        wide = wide.clamp(-448.0, 448.0)  # keeps NaN
    return wide.to(dtype).view(carrier).numpy().view(bits)


def wide(x: Any) -> Any:
    return Handle(widened(x.data, x.dtype.scalar), tl.float32) if is_narrow(x) else x


def in_float32(name: str) -> None:
    """Let a method of the builder work on widened operands, and narrow what it returns."""
    original: Callable[..., Any] = getattr(Builder, name)

    def method(self: Any, *args: Any) -> Any:
        kind = next((a.dtype.scalar for a in args if is_narrow(a)), None)
        result = original(self, *map(wide, args))
        if result.data.dtype == np.bool_:  # of a comparison, whose handle keeps the operands' type
            return Handle(result.data, tl.int1)
        if kind is None:
            return result
        return Handle(narrowed(result.data, kind), kind)

    setattr(Builder, name, method)


def converted(data: np.ndarray, source: Any, target: Any, mode: Any) -> np.ndarray:
    """What `interpreter._convert_float` should return: raw bits of the target type."""
    source, target = source.scalar, target.scalar
    if source not in NARROW and target not in NARROW:
        return _original_convert(data, source, target, mode)
    values = widened(data, source) if source in NARROW else np.asarray(data, np.float32)
    if target in NARROW:
        return narrowed(values, target)
    plain = values.astype(interpreter._get_np_dtype(target))
    return plain.view(getattr(np, f"uint{target.primitive_bitwidth}"))


def cast(self: Any, source: Any, target: Any) -> Any:
    kind, wanted = source.dtype.scalar, target.scalar
    if kind == wanted:
        return source
    if kind in NARROW and not wanted.is_floating():
        values = widened(source.data, kind)
        return Handle(values.astype(interpreter._get_np_dtype(target)), wanted)
    if kind in NARROW or wanted in NARROW:
        data = converted(source.data, kind, wanted, None)
        return Handle(data.view(interpreter._get_np_dtype(target)), wanted)
    return _original_cast(self, source, target)


def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    return _original_dot(self, wide(a), wide(b), *rest)


def fill(name: str, kind: Any) -> None:
    """A constant of a narrow type, where the interpreter has none."""
    if not hasattr(Builder, name):
        setattr(Builder, name, lambda self, v: Handle(narrowed(np.array([v]), kind), kind))


_original_convert = interpreter._convert_float
_original_cast = Builder.cast_impl
_original_dot = Builder.create_dot

interpreter._convert_float = converted
Builder.cast_impl = cast
Builder.create_dot = dot
for _name in ("binary_op", "unary_op", "ternary_op", "create_fma"):
    in_float32(_name)
fill("get_bf16", tl.bfloat16)
fill("get_fp8e4nv", tl.float8e4nv)


def _bool_mask(name: str, place: int) -> None:
    # In 3.9 (scalar & block) gives a mask of int8, which load and store refuse.
    original: Callable[..., Any] = getattr(Builder, name)
    assert "mask" in inspect.signature(original).parameters

    def method(self: Any, *args: Any, **named: Any) -> Any:
        mask = args[place]
        if isinstance(mask, np.ndarray):  # of a descriptor's box
            mask = Handle(mask, tl.int1)
        elif mask.data.dtype != np.bool_:
            mask = Handle(mask.data.astype(bool), tl.int1)
        return original(self, *args[:place], mask, *args[place + 1 :], **named)

    setattr(Builder, name, method)


_bool_mask("create_masked_load", 1)
_bool_mask("create_masked_store", 2)
