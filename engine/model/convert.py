"""A llama-family GGUF file as a Hugging Face model directory.

The file's quantised weights are expanded and stored as bfloat16: SmolLM2 was published in
bfloat16, so the file is half as large as float32 and the rounding (2**-9 of a value) is far below
that of the 4-bit weights it comes from. Every engine and every test reads the converted weights.

Needs gguf, tokenizers, safetensors and torch, which are imported when they are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from agentkv.engine.errors import PullFailed, UnsupportedModel
from agentkv.engine.model.progress import Progress, silent

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VERSION = 1
"""Raised when the output changes: a directory written by another version is made again."""

CONTROL = 3  # gguf token type

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf_file: Path, out: Path, *, progress: Progress = silent) -> None:
    """Write config.json, generation_config.json, model.safetensors, tokenizer.json,
    tokenizer_config.json and chat_template.original.jinja into the directory `out`.

    Raises `UnsupportedModel` when the file is not a llama-family model with a byte-level BPE of
    the smollm kind, `PullFailed` when it cannot be read.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf_file)
    except (OSError, ValueError) as error:
        raise PullFailed(f"{gguf_file.name} is not a readable GGUF file: {error}.") from error
    meta: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    kind = (
        meta.get("general.architecture"),
        meta.get("tokenizer.ggml.model"),
        meta.get("tokenizer.ggml.pre"),
    )
    if kind != ("llama", "gpt2", "smollm"):
        raise UnsupportedModel(
            f"Cannot convert a GGUF file of the kind {kind}: only llama with a smollm tokenizer is known. "
            "Use a directory with safetensors instead."
        )
    config = model_config(meta, tied=not any(t.name == "output.weight" for t in reader.tensors))
    _write_json(out / "config.json", config)
    _write_json(
        out / "generation_config.json",
        {
            "_from_model_config": True,
            **{key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        },
    )
    build_tokenizer(meta).save(str(out / "tokenizer.json"))
    _write_json(out / "tokenizer_config.json", tokenizer_config(meta))
    (out / "chat_template.original.jinja").write_text(
        str(meta["tokenizer.chat_template"]), encoding="utf-8"
    )
    _write_weights(reader.tensors, config, out / "model.safetensors", progress)


def model_config(meta: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    """GGUF metadata as a Hugging Face `LlamaConfig`."""
    heads, hidden = meta["llama.attention.head_count"], meta["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        # The file holds it as float32: 9.99999974e-06 was 1e-05.
        "rms_norm_eps": float(
            np.format_float_scientific(np.float32(meta["llama.attention.layer_norm_rms_epsilon"]))
        ),
        "rope_scaling": None,
        "rope_theta": float(meta["llama.rope.freq_base"]),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": meta["llama.vocab_size"],
    }


def build_tokenizer(meta: Mapping[str, Any]) -> Tokenizer:
    """The byte-level BPE of the file, with the pre-tokenizer that its `smollm` kind stands for:
    digits one by one, then the GPT-2 pattern."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in meta["tokenizer.ggml.merges"]]
    bpe = models.BPE({token: i for i, token in enumerate(tokens)}, merges, fuse_unk=False)
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == CONTROL
        ]
    )
    return tokenizer


def tokenizer_config(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers' AutoTokenizer needs beside tokenizer.json."""
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": False,
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "model_max_length": meta["llama.context_length"],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        # Takes tokenizer.json as it is; GPT2Tokenizer would rebuild it without the digit rule.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
    }


def rotate_half_rows(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Query or key rows of `[heads * head_dim, hidden]` from GGUF's order to Hugging Face's.

    GGUF keeps the two halves of each rotated pair side by side (0, h, 1, h+1, ... of each head);
    Hugging Face's rotary embedding wants all first halves, then all second halves.
    """
    rows, columns = weight.shape
    half = rows // heads // 2
    return weight.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _hf_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER and parts[3] == "weight":
        return f"model.layers.{parts[1]}.{_LAYER[parts[2]]}.weight"
    raise UnsupportedModel(f"The GGUF file has a tensor that a llama model does not know: {name}.")


def _write_weights(tensors: Any, config: Mapping[str, Any], path: Path, progress: Progress) -> None:
    import torch
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    out: dict[str, torch.Tensor] = {}
    for done, tensor in enumerate(tensors):
        progress("converting weights", done, len(tensors))
        name = _hf_name(tensor.name)
        values = dequantize(tensor.data, tensor.tensor_type)
        projection = name.split(".")[-2]
        if projection in heads:
            values = rotate_half_rows(values, heads[projection])
        # A copy: an unquantised tensor is a read-only view of the file.
        out[name] = torch.tensor(values).to(torch.bfloat16)
    save_file(out, path, metadata={"format": "pt"})
    progress("converting weights", len(tensors), len(tensors))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
