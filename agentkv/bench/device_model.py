"""A Llama of random weights, made on the device: no files, no text, only shapes."""

from __future__ import annotations

import torch

from agentkv.bench.device_sizes import Shape
from agentkv.engine.model.config import ModelConfig, Rope
from agentkv.engine.model.linear import Linear
from agentkv.engine.model.llama import Layer, Llama


def config_of(shape: Shape) -> ModelConfig:
    """As a `config.json` of these sizes would be read."""
    return ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=shape.layers,
        num_heads=shape.heads.heads,
        num_kv_heads=shape.heads.kv_heads,
        head_dim=shape.heads.dim,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        vocab_size=shape.vocab,
        max_position=shape.context,
        rms_norm_eps=1e-5,
        eos_token_ids=(),
        tie_embeddings=False,
        rope=Rope(theta=500_000.0),
        layer_windows=(None,) * shape.layers,
        layer_rope=(True,) * shape.layers,
        own=True,
    )


def random_llama(shape: Shape, *, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Llama:
    """Each matrix keeps the size of what it is given, so that numbers stay finite through all layers."""
    maker = torch.Generator(device).manual_seed(seed)
    h, hidden, inner = shape.heads, shape.hidden, shape.inner

    def matrix(rows: int, columns: int) -> torch.Tensor:
        full = torch.empty((rows, columns), dtype=dtype, device=device)
        return full.normal_(0.0, columns**-0.5, generator=maker)

    def linear(rows: int, columns: int) -> Linear:
        return Linear(matrix(rows, columns), packed=False)

    def layer() -> Layer:
        both = matrix(2 * inner, hidden)
        one = torch.ones(hidden, dtype=dtype, device=device)
        return Layer(
            input_norm=one,
            qkv=linear((h.heads + 2 * h.kv_heads) * h.dim, hidden),
            qk_norm=None,
            out=linear(hidden, h.heads * h.dim),
            mlp_norm=one,
            gate=Linear(both[:inner], packed=False),
            up=Linear(both[inner:], packed=False),
            gate_up=Linear(both, packed=False),
            down=linear(hidden, inner),
            rotates=True,
        )

    return Llama(
        config_of(shape),
        "random",
        embedding=matrix(shape.vocab, hidden),
        layers=[layer() for _ in range(shape.layers)],
        norm=torch.ones(hidden, dtype=dtype, device=device),
        head=linear(shape.vocab, hidden),
    )


def layer_weights(shape: Shape) -> int:
    """Numbers in one layer's matrices."""
    h = shape.heads
    return shape.hidden * (2 * h.heads + 2 * h.kv_heads) * h.dim + 3 * shape.hidden * shape.inner


def step_bytes(shape: Shape, dtype: torch.dtype) -> int:
    """Bytes of weights that a decoding step reads: all of them but the embedding."""
    head = shape.hidden * shape.vocab
    return dtype.itemsize * (shape.layers * layer_weights(shape) + head)


def prefill_flops(shape: Shape, tokens: int) -> int:
    """Of a cold prompt whose last row alone goes through the head."""
    attention = 4 * shape.heads.heads * shape.heads.dim * tokens * (tokens + 1) // 2
    each = 2 * layer_weights(shape) * tokens + attention
    return shape.layers * each + 2 * shape.hidden * shape.vocab
