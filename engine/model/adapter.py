"""Any other decoder-only architecture, run by transformers over our KV pool.

The model's own code computes everything but attention. Its attention goes through a function that
we register (`AttentionInterface`), which writes K and V to the pool and reads the pool. No mask is
made on its side: an implementation without a registered mask function gets none.

What cannot work is refused when the model is loaded, not found out later: a dry run records how
each layer calls attention, and a check compares a two-part run over a pool (a cached prefix, then
the rest) with transformers' own eager attention. A model that keeps other state than K and V, adds
biases of its own to the scores or looks ahead fails that check.

Warm and cold answers of such a model agree to rounding; only our own architectures promise bits.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from agentkv.engine.attention.base import AttentionSpec
from agentkv.engine.attention.cpu import CpuAttention
from agentkv.engine.errors import UnsupportedModel
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.config import ModelConfig, architecture, eos_ids, read_json
from agentkv.engine.model.linear import Linear, packing_available
from agentkv.engine.model.load import Attend, Tokens
from agentkv.engine.model.weights import weight_files

_NAME = "agentkv"
_LAYER_TYPES = {"full_attention", "sliding_attention"}
# Arguments of attention functions that change the result and that we do not have.
_REFUSED = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "position biases",
}
_CHECKED_TOKENS = 12

Handler = Callable[..., torch.Tensor]
_active = threading.local()


class PackedModule(nn.Module):
    """`nn.Linear` with packed weights."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.packed = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.packed(x.reshape(-1, self.packed.inputs))
        return out.view(*x.shape[:-1], self.packed.outputs)


class Adapter:
    """`LoadedModel` around a transformers model."""

    def __init__(
        self, model: Any, config: ModelConfig, fingerprint: str, specs: tuple[AttentionSpec, ...]
    ) -> None:
        self.config = config
        self.fingerprint = fingerprint
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self._model = model
        self._specs = specs
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters

    @classmethod
    def load(
        cls, model_dir: Path, fingerprint: str, *, dtype: torch.dtype, device: torch.device
    ) -> Adapter:
        """Load and check. Raises `UnsupportedModel` with the reason."""
        raw = read_json(model_dir / "config.json")
        _refuse(raw)
        weight_files(model_dir)
        # Checked on the CPU, whose attention is the one that is always there, and then moved.
        model = _load(model_dir, architecture(raw), dtype, torch.device("cpu"))
        specs = _trace(model)
        config = _config(model, raw, specs, eos_ids(model_dir, raw))
        adapter = cls(model, config, fingerprint, specs)
        expected = adapter._eager()
        if device.type == "cpu" and packing_available(dtype):
            _pack(model)
        adapter._check(expected)
        if device.type != "cpu":
            model.to(device)
            adapter.device = device
        return adapter

    def specs(self) -> tuple[AttentionSpec, ...]:
        return self._specs

    def least_rows(self) -> int | None:
        # transformers' elementwise code rounds the end of a flat array in its own way, and where
        # that end falls depends on the whole batch: answers agree to rounding, not to the bit.
        return None

    def forward(self, tokens: Tokens, attend: Attend) -> torch.Tensor:
        def handler(
            layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any
        ) -> torch.Tensor:
            rows, heads, dim = query.shape[2], query.shape[1], query.shape[3]
            kv = torch.stack((key[0].transpose(0, 1), value[0].transpose(0, 1)), dim=1)
            out = attend(layer, query[0].transpose(0, 1).reshape(rows, heads, dim), kv)
            return out.view(1, rows, heads, dim)

        rows = tokens.logit_rows
        # Never no row at all: what the model's head does with that is its own affair.
        kept = rows if rows.numel() else rows.new_zeros(1)
        extra = {"logits_to_keep": kept} if self._keeps else {}
        logits = _call(self._model, handler, tokens.ids, tokens.positions, **extra)
        if not self._keeps:
            logits = logits.index_select(0, kept)
        return logits[: rows.numel()].float()

    def _sample(self) -> torch.Tensor:
        high = self.config.vocab_size
        return torch.randint(
            0, high, (_CHECKED_TOKENS,), generator=torch.Generator().manual_seed(0)
        ).to(self.device)

    @torch.inference_mode()
    def _eager(self) -> torch.Tensor:
        """Logits of a short text by transformers alone."""
        self._model.set_attn_implementation("eager")
        try:
            logits: torch.Tensor = (
                self._model(input_ids=self._sample()[None], use_cache=False).logits[0].float()
            )
        finally:
            self._model.set_attn_implementation(_NAME)
        return logits

    @torch.inference_mode()
    def _check(self, expected: torch.Tensor) -> None:
        """The same text in two parts over a pool must give the same logits."""
        spec, ids = self._specs[0], self._sample()
        pool = KVPool(
            layers=len(self._specs),
            slots=_CHECKED_TOKENS,
            kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            dtype=self.dtype,
            device=self.device,
        )
        attention = CpuAttention()
        parts = []
        for low, high in ((0, 7), (7, _CHECKED_TOKENS)):
            plan = attention.plan(
                *(np.array(a, dtype=np.int32) for a in ([0, high - low], [0, high], range(high)))
            )

            def attend(
                layer: int,
                q: torch.Tensor,
                kv: torch.Tensor,
                low: int = low,
                high: int = high,
                plan: Any = plan,
            ) -> torch.Tensor:
                store = pool.layer(layer)
                store[:, low:high].copy_(kv.transpose(0, 1))
                return attention.run(q, store, plan, self._specs[layer])

            rows = torch.arange(low, high, device=self.device)
            parts.append(
                self.forward(
                    Tokens(ids=ids[low:high], positions=rows, logit_rows=rows - low), attend
                )
            )
        found = torch.cat(parts)
        error = float((found - expected).norm() / expected.norm().clamp_min(1e-6))
        limit = 1e-3 if self.dtype == torch.float32 else 5e-2
        if not error <= limit:
            raise UnsupportedModel(
                f"{self.config.architecture} does not give the same logits over cached keys and values as alone "
                f"(relative difference {error:.1e}): it keeps other state, looks ahead, or biases its scores."
            )


def _refuse(raw: dict[str, Any]) -> None:
    """What config.json alone tells us cannot work."""
    name = architecture(raw)
    if "vision_config" in raw or "audio_config" in raw:
        raise UnsupportedModel(f"{name} reads images or audio; agentkv runs text-only decoders.")
    other = set(raw.get("layer_types") or ()) - _LAYER_TYPES
    if other:
        raise UnsupportedModel(
            f"{name} has layers of type {', '.join(sorted(other))}, whose state is not keys and values by position."
        )
    if raw.get("attention_chunk_size"):
        raise UnsupportedModel(f"{name} attends in chunks, which is not supported.")


def _load(model_dir: Path, name: str, dtype: torch.dtype, device: torch.device) -> Any:
    # Imported here: our own architectures must not wait for it.
    from transformers import AttentionInterface, AutoModelForCausalLM
    from transformers.utils import logging

    AttentionInterface.register(_NAME, _attention)
    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            model_dir,
            dtype=dtype,
            attn_implementation=_NAME,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
        )
    except Exception as error:
        # Whatever transformers says about a checkpoint, the user gets one sentence.
        raise UnsupportedModel(
            f"transformers cannot load {name} for this engine: {error}"
        ) from error
    finally:
        if bar:
            logging.enable_progress_bar()
    placed: Any = model
    return placed.to(device).eval()


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The registered function: `[1, heads, rows, head_dim]` in, `[1, rows, heads, head_dim]` out."""
    handler: Handler = _active.handler
    return handler(
        module.layer_idx, query, key, value, mask=attention_mask, module=module, **options
    ), None


def _call(
    model: Any, handler: Handler, ids: torch.Tensor, positions: torch.Tensor, **extra: Any
) -> torch.Tensor:
    """Logits `[rows, vocab]` with `handler` as the attention of this thread."""
    _active.handler = handler
    try:
        out = model(input_ids=ids[None], position_ids=positions[None], use_cache=False, **extra)
    finally:
        _active.handler = None
    logits: torch.Tensor = out.logits[0]
    return logits


def _trace(model: Any) -> tuple[AttentionSpec, ...]:
    """Run a few tokens, and note how every layer calls attention."""
    name = type(model).__name__
    seen: dict[int, AttentionSpec] = {}

    def handler(
        layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
    ) -> torch.Tensor:
        for option, what in _REFUSED.items():
            if options.get(option) is not None:
                raise UnsupportedModel(f"{name} uses {what}, which is not supported.")
        if options["mask"] is not None:
            raise UnsupportedModel(f"{name} makes an attention mask of its own.")
        if key.shape != value.shape:
            raise UnsupportedModel(
                f"{name} has keys and values of different sizes (latent attention)."
            )
        if layer in seen or key.shape[2] != query.shape[2]:
            raise UnsupportedModel(f"{name} shares keys and values between layers.")
        if getattr(options["module"], "is_causal", True) is False:
            raise UnsupportedModel(f"{name} is not causal in layer {layer}.")
        window, scale = options.get("sliding_window"), options.get("scaling")
        softcap = options.get("softcap") or options.get("softcapping")
        seen[layer] = AttentionSpec(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=key.shape[3],
            scale=float(scale if scale is not None else key.shape[3] ** -0.5),
            sliding_window=None if window is None else int(window),
            softcap=None if softcap is None else float(softcap),
        )
        return torch.zeros_like(query.transpose(1, 2))

    ids = torch.arange(3, device=model.device)
    try:
        with torch.inference_mode():
            _call(model, handler, ids, ids)
    except UnsupportedModel:
        raise
    except Exception as error:
        raise UnsupportedModel(
            f"{name} does not run with a custom attention function: {error}"
        ) from error
    _refuse_trace(model, name, seen)
    return tuple(seen[i] for i in range(len(seen)))


def _refuse_trace(model: Any, name: str, seen: dict[int, AttentionSpec]) -> None:
    layers = int(model.config.num_hidden_layers)
    if sorted(seen) != list(range(layers)):
        raise UnsupportedModel(
            f"{name} has {layers} layers, and {len(seen)} of them go through transformers' attention interface. "
            "Layers with other state (recurrent, linear) cannot be cached by prefix."
        )
    shapes = {(s.num_heads, s.num_kv_heads, s.head_dim) for s in seen.values()}
    if len(shapes) > 1:
        raise UnsupportedModel(
            f"{name} has layers of different attention shapes: {sorted(shapes)}."
        )
    types = getattr(model.config, "layer_types", None) or ()
    for layer, kind in enumerate(types[:layers]):
        if kind == "sliding_attention" and seen[layer].sliding_window is None:
            raise UnsupportedModel(
                f"{name} does not tell attention about the window of layer {layer}."
            )


def _config(
    model: Any, raw: dict[str, Any], specs: tuple[AttentionSpec, ...], eos: tuple[int, ...]
) -> ModelConfig:
    c = model.config
    longest = next(
        (
            int(v)
            for key in ("max_position_embeddings", "n_positions", "max_seq_len")
            if (v := getattr(c, key, None))
        ),
        2048,
    )
    rope = getattr(c, "rope_parameters", None) or {}
    for part in (rope, *(v for v in rope.values() if isinstance(v, dict))):
        if part.get("rope_type") in ("dynamic", "longrope"):
            # These change all rotations once a sequence outgrows the original length, and with
            # them every key that was cached before.
            original = part.get("original_max_position_embeddings") or getattr(
                c, "original_max_position_embeddings", None
            )
            longest = min(longest, int(original or longest))
    return ModelConfig(
        architecture=architecture(raw),
        num_layers=len(specs),
        num_heads=specs[0].num_heads,
        num_kv_heads=specs[0].num_kv_heads,
        head_dim=specs[0].head_dim,
        hidden_size=int(c.hidden_size),
        intermediate_size=int(getattr(c, "intermediate_size", None) or 4 * c.hidden_size),
        vocab_size=int(c.vocab_size),
        max_position=longest,
        rms_norm_eps=float(getattr(c, "rms_norm_eps", None) or 1e-5),
        eos_token_ids=eos,
        tie_embeddings=bool(getattr(c, "tie_word_embeddings", False)),
        rope=None,
        layer_windows=tuple(s.sliding_window for s in specs),
        layer_rope=(True,) * len(specs),
        own=False,
    )


def _pack(model: nn.Module) -> None:
    """Replace every plain `nn.Linear` by its packed twin, which is faster."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                bias = None if child.bias is None else child.bias.detach()
                setattr(
                    parent, name, PackedModule(Linear(child.weight.detach(), bias, packed=True))
                )
