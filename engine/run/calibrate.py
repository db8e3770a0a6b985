"""Scales for FP8 K/V: what the checkpoint says, or what a short fixed text shows.

The text, its tokens and the batch are always the same ones, and a scale is a power of two, so that
another thread count or CPU, whose sums differ in their last bits, still gives the same scales: what
one process wrote to disk another one can read.

e4m3's relative error hardly depends on the scale, so headroom is free; clipping is what hurts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.load import LoadedModel
from agentkv.engine.model.shard import WHOLE, Shard
from agentkv.engine.model.weights import Weights
from agentkv.engine.run.runner import ModelRunner
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.engine.types import IntArray
from agentkv.kernels.fp8 import LARGEST

TOKENS = 128
"""Of each sequence at most; there are five."""

HEADROOM = 2.0
"""Times the largest number seen, before the scale is rounded up to a power of two."""

FLOOR = 2.0**-8
"""The least "largest number": a head that was silent here may speak later."""

TEXTS = (
    "The harbour office opens at seven. Ships that arrive before then anchor outside the breakwater "
    "and wait for a pilot; in winter that can take until noon. Last year 4,318 vessels called here, "
    "three per cent fewer than in 2019, and almost half of them carried grain, timber or salt. Who "
    "wants to see them come in should climb the old light: 212 steps, no lift, and a view as far as "
    "the islands. Is it worth it? Ask the keeper. She has been up there every morning for thirty "
    "years, and she still says yes, most days.",
    '{"name": "search_flights", "description": "Find flights between two airports on a date.", '
    '"parameters": {"type": "object", "properties": {"origin": {"type": "string"}, "destination": '
    '{"type": "string"}, "date": {"type": "string", "format": "date"}, "max_price": {"type": '
    '"number", "minimum": 0}, "cabin": {"enum": ["economy", "business", "first"]}}, "required": '
    '["origin", "destination", "date"]}}\n{"origin": "LIS", "destination": "OSL", "date": '
    '"2024-05-17", "max_price": 349.5, "cabin": "economy"}\n{"error": null, "flights": []}',
    "def moving_average(values: list[float], width: int) -> list[float]:\n"
    '    """Means of `width` neighbours; shorter at the ends."""\n'
    '    if width < 1:\n        raise ValueError(f"width must be positive, got {width}")\n'
    "    out, total = [], 0.0\n    for i, value in enumerate(values):\n        total += value\n"
    "        if i >= width:\n            total -= values[i - width]\n"
    "        out.append(total / min(i + 1, width))\n    return out\n\n\n"
    'if __name__ == "__main__":\n    print(moving_average([1, 2, 3, 4.5, -6e-3], 2))\n',
    "user: Können Sie mir bitte die Rechnung Nr. 0047/B noch einmal schicken?\nassistant: Sí, claro. "
    "¿A qué dirección?\nuser: 42, rue de l'Église — 2e étage, à gauche. Спасибо! 谢谢。 ありがとう 🙂\n"
    "assistant: | item | qty | € |\n|------|-----|---|\n| pen  | 12  | 8.40 |\n| ink  | 3   | 19.99 "
    "|\n\n1. First, open `settings.toml`.\n2. Then set `retries = 5`.\n\n> **Note:** x² + y² ≤ r²",
)


def fp8_scales(
    model: LoadedModel, tokenizer: Tokenizer, directory: Path, shard: Shard = WHOLE
) -> torch.Tensor:
    """float32 `[layers, 2, kv_heads]`: the checkpoint's own, or calibrated. The latter runs the
    model over five short texts, on the calling thread."""
    spec, layers = model.specs()[0], len(model.specs())
    heads = spec.num_kv_heads * shard.world
    own = of_checkpoint(directory, layers, heads)
    if own is not None:
        return own[:, :, shard.part(heads)].contiguous()
    limit = min(TOKENS, model.config.max_position)
    return calibrate(model, token_ids(tokenizer, model.config.vocab_size, limit))


def of_checkpoint(directory: Path, layers: int, kv_heads: int) -> torch.Tensor | None:
    """The scales of a checkpoint that was made for FP8 K/V (`self_attn.k_scale` and `v_scale` in
    every layer, one number or one a KV head); None for any other."""
    found = torch.empty(layers, 2, kv_heads)
    with Weights(directory) as weights:
        for layer in range(layers):
            for side, name in enumerate(("k_scale", "v_scale")):
                key = f"model.layers.{layer}.self_attn.{name}"
                if key not in weights:
                    return None
                value = weights.take(key).to(torch.float32).flatten()
                if value.numel() not in (1, kv_heads):
                    return None
                found[layer, side] = value
    good = bool(torch.isfinite(found).all()) and bool((found > 0).all())
    return found if good else None


def token_ids(tokenizer: Tokenizer, vocab_size: int, limit: int) -> list[IntArray]:
    """The texts, each behind a few control tokens, and one walk through the vocabulary."""
    marks = np.array(sorted(tokenizer.special_ids)[:4], dtype=np.int32)
    found = [np.concatenate([marks, tokenizer.encode_raw(text)]) for text in TEXTS]
    stride = int(vocab_size / 1.618033988749895)
    found.append((np.arange(limit, dtype=np.int64) * stride % vocab_size).astype(np.int32))
    return [(ids[:limit] % np.int32(vocab_size)).astype(np.int32) for ids in found]


def calibrate(model: LoadedModel, sequences: Sequence[IntArray]) -> torch.Tensor:
    """Scales that hold `HEADROOM` times what these sequences give, float32 `[layers, 2, kv_heads]`,
    each a power of two."""
    specs = model.specs()
    lengths = [len(ids) for ids in sequences]
    total = sum(lengths)
    pool = KVPool(
        layers=len(specs),
        slots=total,
        kv_heads=specs[0].num_kv_heads,
        head_dim=specs[0].head_dim,
        dtype=model.dtype,
        device=model.device,
    )
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    slots = np.arange(total, dtype=np.int32)
    attention = None
    if model.device.type != "cpu":
        from agentkv.engine.attention.triton import TritonAttention

        attention = TritonAttention(device=model.device, cascade=False)
    ModelRunner(model, pool, attention=attention).forward(
        ForwardBatch(
            input_ids=np.concatenate(sequences),
            positions=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
            out_slots=slots,
            qo_indptr=ends,
            kv_indptr=ends,
            kv_indices=slots,
            logit_rows=slots[:0],
        )
    )
    most = torch.stack(
        [pool.layer(i)[:, :total].abs().amax(dim=(1, 3)) for i in range(pool.layers)]
    )
    return scales_for(most.float())


def scales_for(most: torch.Tensor) -> torch.Tensor:
    """The scales for numbers up to `most`, with headroom: powers of two."""
    wanted = most.clamp_min(FLOOR) * (HEADROOM / LARGEST)
    exponents = [math.ceil(math.log2(value)) for value in wanted.flatten().tolist()]
    return torch.tensor([2.0**e for e in exponents]).view(most.shape).to(most.device)
