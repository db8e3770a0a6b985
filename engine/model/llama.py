"""The Llama family, written for few calls a layer.

Llama 2/3.x, Mistral, SmolLM2, SmolLM3 (layers without rotation), Qwen2/2.5 (bias on q, k, v) and
Qwen3 (norms on q and k). They differ in flags, not in structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.model.config import ModelConfig
from agentkv.engine.model.linear import Linear, least_rows, packing_available
from agentkv.engine.model.load import Attend, Tokens
from agentkv.engine.model.rope import RopeTable
from agentkv.engine.model.weights import Weights
from agentkv.kernels.interleave import interleave


@dataclass(slots=True)
class Layer:
    """One block's weights. `qk_norm`: `[heads + kv_heads, head_dim]`, or None. `gate_up`: gate and up
    as one product, which they are then views of."""

    input_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate: Linear
    up: Linear
    down: Linear
    rotates: bool
    gate_up: Linear | None = None


def joins(device: torch.device) -> bool:
    """Whether gate and up are one product there: each fills a CPU's cores by itself."""
    return device.type != "cpu"


class Llama:
    """`LoadedModel` of our own architectures.

    `fused`: go by the kernels (model/fused.py), with `fixed_rows` rows in every product if that is
    not None. `fuse` sets both, for who runs it on an accelerator.
    """

    fused: bool = False
    fixed_rows: int | None = None

    def __init__(
        self,
        config: ModelConfig,
        fingerprint: str,
        *,
        embedding: torch.Tensor,
        layers: list[Layer],
        norm: torch.Tensor,
        head: Linear,
    ) -> None:
        assert config.rope is not None
        self.config = config
        self.fingerprint = fingerprint
        self.dtype = embedding.dtype
        self.device = embedding.device
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        self._rope = RopeTable(config.rope, config.head_dim, device=self.device)
        self._least: dict[int, int | None] = {}

    @classmethod
    def load(
        cls,
        model_dir: Path,
        config: ModelConfig,
        fingerprint: str,
        *,
        dtype: torch.dtype,
        device: torch.device,
        weights: Weights | None = None,
        head_rows: slice | None = None,
    ) -> Llama:
        """Read the weights. Raises `UnsupportedModel` when a tensor is missing or misshapen.

        `weights`, `head_rows`: where `config` is one part of a model (see model/shard.py), its
        weights, and which rows of the vocabulary its head has.
        """
        packed = device.type == "cpu" and packing_available(dtype)
        hidden, dim = config.hidden_size, config.head_dim
        heads, kv_heads, inner = config.num_heads, config.num_kv_heads, config.intermediate_size
        part = head_rows or slice(0, config.vocab_size)
        with weights or Weights(model_dir) as weights:

            def tensor(name: str, *shape: int) -> torch.Tensor:
                # Always a copy: packed or not, the result must not keep the file mapped.
                return weights.take(name, shape).to(device=device, dtype=dtype, copy=True)

            def bias(name: str, size: int) -> torch.Tensor | None:
                return tensor(f"{name}.bias", size) if f"{name}.bias" in weights else None

            def linear(name: str, outputs: int, inputs: int) -> Linear:
                return Linear(
                    tensor(f"{name}.weight", outputs, inputs), bias(name, outputs), packed=packed
                )

            def joint(*names: str) -> tuple[Linear, Linear, Linear]:
                """Both as one product, and each, over the same memory."""
                both = torch.cat([tensor(f"{n}.weight", inner, hidden) for n in names])
                some = [bias(n, inner) for n in names]
                added = None
                if any(b is not None for b in some):
                    added = torch.cat([both.new_zeros(inner) if b is None else b for b in some])
                parts = ((0, 2 * inner), (0, inner), (inner, 2 * inner))
                one, gate, up = (
                    Linear(both[a:b], None if added is None else added[a:b], packed=packed)
                    for a, b in parts
                )
                return one, gate, up

            def layer(index: int) -> Layer:
                at = f"model.layers.{index}"
                rows = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * dim}
                parts = {
                    p: tensor(f"{at}.self_attn.{p}_proj.weight", n, hidden) for p, n in rows.items()
                }
                biases = {p: bias(f"{at}.self_attn.{p}_proj", n) for p, n in rows.items()}
                norms = None
                if f"{at}.self_attn.q_norm.weight" in weights:
                    q, k = (tensor(f"{at}.self_attn.{p}_norm.weight", dim) for p in "qk")
                    norms = torch.cat(
                        (
                            interleave(q, dim).expand(heads, dim),
                            interleave(k, dim).expand(kv_heads, dim),
                        )
                    )
                for p in "qk":
                    parts[p] = interleave(parts[p], dim)
                some = [b for b in biases.values() if b is not None]
                joined = None
                if some:
                    filled = {
                        p: b if b is not None else some[0].new_zeros(rows[p])
                        for p, b in biases.items()
                    }
                    joined = torch.cat(
                        (interleave(filled["q"], dim), interleave(filled["k"], dim), filled["v"])
                    )
                gate_up = None
                if not joins(device):
                    gate = linear(f"{at}.mlp.gate_proj", inner, hidden)
                    up = linear(f"{at}.mlp.up_proj", inner, hidden)
                else:
                    gate_up, gate, up = joint(f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj")
                return Layer(
                    input_norm=tensor(f"{at}.input_layernorm.weight", hidden),
                    qkv=Linear(
                        torch.cat((parts["q"], parts["k"], parts["v"])), joined, packed=packed
                    ),
                    qk_norm=norms,
                    out=linear(f"{at}.self_attn.o_proj", hidden, heads * dim),
                    mlp_norm=tensor(f"{at}.post_attention_layernorm.weight", hidden),
                    gate=gate,
                    up=up,
                    gate_up=gate_up,
                    down=linear(f"{at}.mlp.down_proj", hidden, inner),
                    rotates=config.layer_rope[index],
                )

            embedding = tensor("model.embed_tokens.weight", config.vocab_size, hidden)
            # A tied checkpoint may carry the head too; a checkpoint that claims a head and has
            # none shares the embedding.
            tied = config.tie_embeddings or "lm_head.weight" not in weights
            matrix = (
                embedding[part]
                if tied
                else tensor("lm_head.weight", part.stop - part.start, hidden)
            )
            return cls(
                config,
                fingerprint,
                embedding=embedding,
                layers=[layer(i) for i in range(config.num_layers)],
                norm=tensor("model.norm.weight", hidden),
                head=Linear(matrix, None, packed=packed),
            )

    def specs(self) -> tuple[AttentionSpec, ...]:
        c = self.config
        return tuple(
            AttentionSpec(
                num_heads=c.num_heads,
                num_kv_heads=c.num_kv_heads,
                head_dim=c.head_dim,
                scale=c.head_dim**-0.5,
                sliding_window=window,
            )
            for window in c.layer_windows
        )

    def fuse(self, fixed_rows: int | None = None) -> None:
        """Go by fused kernels from now on. Makes what they need beside the weights."""
        self.fused, self.fixed_rows = True, fixed_rows
        self.rotations()

    def rotations(self) -> torch.Tensor:
        """Cosine and sine of every position, float32 `[positions, head_dim / 2, 2]`."""
        return self._rope.whole(self.config.max_position)

    def _products(self) -> list[Linear]:
        """One of each shape, at least."""
        every = [self.head]
        for layer in self.layers[:1] + self.layers[-1:]:
            every += [layer.qkv, layer.out, layer.gate, layer.up, layer.down]
            every += [] if layer.gate_up is None else [layer.gate_up]
        return every

    def least_rows(self) -> int | None:
        if self.fixed_rows is not None:
            from agentkv.engine.model.fused import alike

            return self.fixed_rows if alike(self._products(), self.fixed_rows) else None
        threads = torch.get_num_threads()
        if threads not in self._least:
            self._least[threads] = least_rows(self._products())
        return self._least[threads]

    def forward(self, tokens: Tokens, attend: Attend) -> torch.Tensor:
        if self.fused:
            from agentkv.engine.model.fused import forward

            return forward(self, tokens, attend)
        c = self.config
        rows, heads, turned = tokens.ids.shape[0], c.num_heads, c.num_heads + c.num_kv_heads
        width, eps = (c.hidden_size,), c.rms_norm_eps
        x = functional.embedding(tokens.ids, self.embedding)
        turn = self._rope.at(tokens.positions)
        for index, layer in enumerate(self.layers):
            h = functional.rms_norm(x, width, layer.input_norm, eps)
            qkv = layer.qkv(h).view(rows, turned + c.num_kv_heads, c.head_dim)
            qk = qkv[:, :turned]
            if layer.qk_norm is not None:
                qk.copy_(functional.rms_norm(qk, (c.head_dim,), None, eps) * layer.qk_norm)
            if layer.rotates:
                RopeTable.rotate(qk, turn)
            kv = qkv[:, heads:].unflatten(1, (2, c.num_kv_heads))
            x = layer.out.plus(attend(index, qkv[:, :heads], kv), x)
            h = functional.rms_norm(x, width, layer.mlp_norm, eps)
            x = layer.down.plus(layer.up.times(h, layer.gate.silu(h)), x)
        if not tokens.logit_rows.numel():  # a chunk in the middle of a prompt
            return x.new_empty((0, c.vocab_size), dtype=torch.float32)
        wanted = functional.rms_norm(x.index_select(0, tokens.logit_rows), width, self.norm, eps)
        return self.head(wanted).float()
