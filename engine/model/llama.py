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
from agentkv.kernels.rope import interleave


@dataclass(slots=True)
class Layer:
    """One block's weights. `qk_norm`: `[heads + kv_heads, head_dim]`, or None."""

    input_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    out: Linear
    mlp_norm: torch.Tensor
    gate: Linear
    up: Linear
    down: Linear
    rotates: bool


class Llama:
    """`LoadedModel` of our own architectures."""

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
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
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
    ) -> Llama:
        """Read the weights. Raises `UnsupportedModel` when a tensor is missing or misshapen."""
        packed = device.type == "cpu" and packing_available(dtype)
        hidden, dim = config.hidden_size, config.head_dim
        heads, kv_heads, inner = config.num_heads, config.num_kv_heads, config.intermediate_size
        with Weights(model_dir) as weights:

            def tensor(name: str, *shape: int) -> torch.Tensor:
                # Always a copy: packed or not, the result must not keep the file mapped.
                return weights.take(name, shape).to(device=device, dtype=dtype, copy=True)

            def bias(name: str, size: int) -> torch.Tensor | None:
                return tensor(f"{name}.bias", size) if f"{name}.bias" in weights else None

            def linear(name: str, outputs: int, inputs: int) -> Linear:
                return Linear(
                    tensor(f"{name}.weight", outputs, inputs), bias(name, outputs), packed=packed
                )

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
                return Layer(
                    input_norm=tensor(f"{at}.input_layernorm.weight", hidden),
                    qkv=Linear(
                        torch.cat((parts["q"], parts["k"], parts["v"])), joined, packed=packed
                    ),
                    qk_norm=norms,
                    out=linear(f"{at}.self_attn.o_proj", hidden, heads * dim),
                    mlp_norm=tensor(f"{at}.post_attention_layernorm.weight", hidden),
                    gate=linear(f"{at}.mlp.gate_proj", inner, hidden),
                    up=linear(f"{at}.mlp.up_proj", inner, hidden),
                    down=linear(f"{at}.mlp.down_proj", hidden, inner),
                    rotates=config.layer_rope[index],
                )

            embedding = tensor("model.embed_tokens.weight", config.vocab_size, hidden)
            # A tied checkpoint may carry the head too; a checkpoint that claims a head and has
            # none shares the embedding.
            tied = config.tie_embeddings or "lm_head.weight" not in weights
            matrix = embedding if tied else tensor("lm_head.weight", config.vocab_size, hidden)
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

    def least_rows(self) -> int | None:
        threads = torch.get_num_threads()
        if threads not in self._least:
            every = [self._head]
            for layer in self._layers[:1] + self._layers[-1:]:
                every += [layer.qkv, layer.out, layer.gate, layer.up, layer.down]
            self._least[threads] = least_rows(every)
        return self._least[threads]

    def forward(self, tokens: Tokens, attend: Attend) -> torch.Tensor:
        c = self.config
        rows, heads, turned = tokens.ids.shape[0], c.num_heads, c.num_heads + c.num_kv_heads
        width, eps = (c.hidden_size,), c.rms_norm_eps
        x = functional.embedding(tokens.ids, self._embedding)
        turn = self._rope.at(tokens.positions)
        for index, layer in enumerate(self._layers):
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
        wanted = functional.rms_norm(x.index_select(0, tokens.logit_rows), width, self._norm, eps)
        return self._head(wanted).float()
