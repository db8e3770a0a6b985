"""Which attention an engine has, by its settings and its device.

    attention    on the CPU                        on CUDA
    auto         cpu                               triton
    cpu          the tiles of attention/cpu.py     refused
    triton       the kernels' torch references,    the kernels
                 or the interpreter
    flashinfer   refused                           FlashInfer, where it is installed

Triton is imported only where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkv.engine.config import EngineConfig
from agentkv.engine.device import Device
from agentkv.engine.errors import InvalidRequest

if TYPE_CHECKING:
    from agentkv.engine.attention.triton import TritonAttention


def attention_name(config: EngineConfig, device: Device | None) -> str:
    """`cpu`, `triton` or `flashinfer`. Raises `InvalidRequest` for what cannot be."""
    name = config.attention
    if name == "auto":
        return "cpu" if device is None else "triton"
    if name == "cpu" and device is not None:
        raise InvalidRequest(
            "attention='cpu' works on CPU tensors; with a GPU it is 'triton' or 'flashinfer'.",
            param="attention",
        )
    if name == "flashinfer" and device is None:
        raise InvalidRequest(
            "attention='flashinfer' needs a CUDA device; on the CPU it is 'cpu' or 'triton'.",
            param="attention",
        )
    if name == "flashinfer" and config.deterministic:
        raise InvalidRequest(
            "deterministic=True takes attention='triton': FlashInfer cuts its work by the batch.",
            param="attention",
        )
    return name


def attention_mark(name: str, *, deterministic: bool) -> str | None:
    """What the cache's namespace says of it; None for the CPU's own, which was there first.

    Backends add up in different orders, so from the second layer on they write K and V that differ in
    the last bits. A warm answer must be the cold one's: a prefix on disk that another backend wrote
    would break that after a restart. The deterministic way is one of its own, for the same reason.
    """
    if name == "cpu":
        return None
    return f"{name}-deterministic" if deterministic else name


def triton_attention(
    config: EngineConfig, device: Device | None, *, graph_bytes: int = 0
) -> TritonAttention:
    """The Triton backend as the settings want it. `graph_bytes`: see there."""
    from agentkv.engine.attention.triton import TritonAttention

    return TritonAttention(
        config.page_size,
        device="cpu" if device is None else device.where,
        cascade=config.cascade,
        deterministic=config.deterministic,
        graph_bytes=graph_bytes,
    )
