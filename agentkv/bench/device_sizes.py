"""What `bench device` measures: sizes for a GPU, and such as prove the script itself on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agentkv.bench.device_batch import LLAMA_8B, Heads

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama, by its sizes."""

    hidden: int
    inner: int
    layers: int
    vocab: int
    heads: Heads
    context: int


EIGHT_B = Shape(4096, 14336, 32, 128256, LLAMA_8B, 65536)


@dataclass(frozen=True, slots=True)
class Sizes:
    """`copy`: bytes; `matrix`: rows of a square product. `decode_*`, `extend`, `cascade_*`: of the
    kernels, `extend` as (new tokens, tokens before them) of a sequence, `extend_tokens` new ones in
    all. The rest is of the engine, lengths in tokens."""

    heads: Heads
    dtype: torch.dtype
    copy: int
    matrix: tuple[int, ...]
    decode_batches: tuple[int, ...]
    decode_lengths: tuple[int, ...]
    pages: tuple[int, ...]
    extend: tuple[tuple[int, int], ...]
    extend_tokens: int
    cascade_batches: tuple[int, ...]
    cascade_prefixes: tuple[int, ...]
    cascade_own: int
    rows: int
    model: Shape
    prompt: int
    repeats: int
    engine_batches: tuple[int, ...]
    engine_context: int
    engine_steps: int
    shared_batch: int
    shared_prefix: int
    shared_own: int
    step_tokens: int


FULL = Sizes(
    heads=LLAMA_8B,
    dtype=torch.bfloat16,
    copy=4 << 30,
    matrix=(4096, 8192, 16384),
    decode_batches=(1, 16, 64, 256),
    decode_lengths=(1024, 4096, 16384),
    pages=(16, 1),
    extend=((1024, 0), (4096, 0), (8192, 0), (1024, 8192), (4096, 8192), (8192, 8192)),
    extend_tokens=16384,
    cascade_batches=(4, 16, 64, 256),
    cascade_prefixes=(1024, 8192, 32768),
    cascade_own=256,
    rows=8192,
    model=EIGHT_B,
    prompt=8192,
    repeats=5,
    engine_batches=(1, 16, 64, 256),
    engine_context=1024,
    engine_steps=32,
    shared_batch=64,
    shared_prefix=8192,
    shared_own=256,
    step_tokens=8192,
)

_TINY = Heads(heads=4, kv_heads=2, dim=16)

DRY = Sizes(
    heads=_TINY,
    dtype=torch.float32,
    copy=1 << 20,
    matrix=(64,),
    decode_batches=(1, 3),
    decode_lengths=(40,),
    pages=(16, 1),
    extend=((32, 0), (16, 48)),
    extend_tokens=32,
    cascade_batches=(4,),
    cascade_prefixes=(32, 256),
    cascade_own=16,
    rows=16,
    model=Shape(64, 128, 2, 256, _TINY, 2048),
    prompt=512,
    repeats=2,
    engine_batches=(1, 3),
    engine_context=32,
    engine_steps=3,
    shared_batch=4,
    shared_prefix=512,
    shared_own=16,
    step_tokens=256,
)
