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

import importlib.util
from typing import TYPE_CHECKING

from agentkv.engine.attention.base import AttentionBackend
from agentkv.engine.config import EngineConfig
from agentkv.engine.device import Device
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.load import LoadedModel
from agentkv.engine.run.runner import ModelRunner
from agentkv.engine.run.sampler import Sampler

if TYPE_CHECKING:
    from agentkv.engine.run.device_runner import DeviceRunner


BATCH_TOKENS = ((32 << 30, 8192), (20 << 30, 4096), (0, 2048))
"""Token budget of a step on a GPU of at least so many bytes: enough to be busy with, while what a step
takes stays a small part of its memory."""

CPU_BATCH_TOKENS = 512
"""On a CPU, which is busy with 128 of them: more would only be longer steps."""

CPU_MARK = "cpu-2"
"""Another number when the CPU's attention adds up in another order than before."""


def attention_name(config: EngineConfig, device: Device | None) -> str:
    """`cpu`, `triton` or `flashinfer`. Raises `InvalidRequest` for what cannot be."""
    name = config.attention
    if name == "auto":
        name = "cpu" if device is None else "triton"
    if device is not None and importlib.util.find_spec("triton") is None:
        raise InvalidRequest(
            "A GPU needs Triton, which torch's builds for CUDA and ROCm bring along: install torch "
            "from there, or triton 3.6 or newer. device='cpu' runs without.",
            param="device",
        )
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


def attention_mark(name: str, *, deterministic: bool) -> str:
    """What the cache's namespace says of it.

    Backends add up in different orders, so from the second layer on they write K and V that differ in
    the last bits. A warm answer must be the cold one's: a prefix on disk that another backend wrote
    would break that after a restart. The deterministic way is one of its own, for the same reason.
    """
    if name == "cpu":
        return CPU_MARK
    return f"{name}-deterministic" if deterministic else name


def make_runner(
    config: EngineConfig,
    model: LoadedModel,
    pool: KVPool,
    device: Device | None,
    attention: str,
    max_len: int,
) -> tuple[ModelRunner | DeviceRunner, Sampler]:
    """What runs the steps of an engine, and what chooses tokens. On the thread that will use them;
    `device_tokens` or `prepare` comes first where there is a device."""
    if attention == "cpu":
        return ModelRunner(model, pool), Sampler(model.config.vocab_size)
    from agentkv.engine.attention.triton import TritonAttention

    if device is None:
        kernels = TritonAttention(
            config.page_size, cascade=config.cascade, deterministic=config.deterministic
        )
        return ModelRunner(model, pool, attention=kernels), Sampler(model.config.vocab_size)
    from agentkv.engine.run.device_runner import DeviceRunner, prepare
    from agentkv.engine.run.device_sampler import DeviceSampler

    prepare(model, deterministic=config.deterministic)
    backend: AttentionBackend
    if attention == "flashinfer":
        from agentkv.engine.attention.flashinfer import FlashInferAttention

        backend = FlashInferAttention(config.page_size, device=device.where)
    else:
        graphs = config.cuda_graphs and model.config.own and not config.deterministic
        backend = TritonAttention(
            config.page_size,
            device=device.where,
            cascade=config.cascade,
            deterministic=config.deterministic,
            graph_bytes=pool.token_bytes // pool.layers if graphs else 0,
        )
    runner = DeviceRunner(
        model,
        pool,
        backend,
        device,
        page_size=config.page_size,
        graphs=config.cuda_graphs,
        max_running=config.max_running,
        max_len=max_len,
    )
    return runner, DeviceSampler(model.config.vocab_size, device)


def batch_tokens(config: EngineConfig, device: Device | None) -> int:
    """Token budget of a step."""
    if config.max_batch_tokens is not None:
        return config.max_batch_tokens
    if device is None or config.deterministic:  # which keeps parts of attention for each row
        return CPU_BATCH_TOKENS
    _, total = device.memory()
    return next(count for least, count in BATCH_TOKENS if total >= least)


def device_tokens(
    config: EngineConfig,
    model: LoadedModel,
    device: Device,
    bytes_per_token: int,
    window: int,
    rows: int,
) -> int:
    """Tokens of the pool on `device`, by what is free there once the model is in place. `rows`: the
    token budget of a step."""
    from agentkv.engine.attention.triton import SPLIT
    from agentkv.engine.run.device_runner import prepare
    from agentkv.engine.run.sizing import device_pool_tokens

    prepare(model, deterministic=config.deterministic)
    free, total = device.memory()
    return device_pool_tokens(
        model.config,
        model.dtype,
        bytes_per_token=bytes_per_token,
        free=free,
        total=total,
        share=config.gpu_memory,
        rows=rows,
        sequences=config.max_running,
        graphs=config.cuda_graphs and model.config.own and not config.deterministic,
        window=window,
        pieces=-(-window // SPLIT) if config.deterministic else 1,
    )


def no_bits(
    config: EngineConfig, device: Device | None, attention: str, dtype: str
) -> InvalidRequest:
    """Why `deterministic` cannot be had."""
    if attention == "cpu":
        why = f"with attention='cpu' it takes dtype='float32' and a pool of that or fp8 (dtype: {dtype})"
    elif device is None:
        why = "on the CPU, attention='triton' gives it in Triton's interpreter only"
    else:
        why = (
            "this device's matrix library, or this model's own code, does not treat all rows alike"
        )
    return InvalidRequest(
        f"deterministic=True cannot be kept: {why}; and nothing below the pool may be narrower than "
        f"it (host_kv_dtype is {config.host_kv_dtype!r}).",
        param="deterministic",
    )
