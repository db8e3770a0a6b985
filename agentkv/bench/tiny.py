"""A random model of a few hundred kilobytes, for runs that are about the engine and not the text.

A Llama with two layers whose tokenizer has one token for each byte, and the chat template of the
embedded model. Seeded: every build of it is the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import agentkv.engine.model as model_package

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTEXT = 32_768
Weights = npt.NDArray[np.float32]


def build(directory: Path, *, seed: int = 0, hidden: int = 64, layers: int = 2) -> Path:
    """Write the model into `directory` (made if need be) and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {name: i for i, name in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(directory / "tokenizer.json"))
    template = Path(model_package.__path__[0]) / "templates" / "smollm2_tools.jinja"
    _json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[2],
            "pad_token": SPECIAL[0],
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT,
            "chat_template": template.read_text(encoding="utf-8"),
        },
    )
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "hidden_act": "silu",
        "vocab_size": len(vocab),
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }
    _json(directory / "config.json", config)
    _json(directory / "generation_config.json", {"bos_token_id": 0, "eos_token_id": 2})
    save_file(
        _weights(len(vocab), hidden, layers, seed),
        directory / "model.safetensors",
        metadata={"format": "pt"},
    )
    return directory


def _weights(vocab: int, hidden: int, layers: int, seed: int) -> dict[str, Weights]:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Weights:
        # Larger than a trained model's, so that greedy answers depend on the prompt.
        scale = np.float32((2.0 / columns) ** 0.5)
        return rng.standard_normal((rows, columns), dtype=np.float32) * scale

    one = np.ones(hidden, dtype=np.float32)
    out = {"model.embed_tokens.weight": matrix(vocab, hidden), "model.norm.weight": one}
    for i in range(layers):
        name = f"model.layers.{i}."
        out |= {
            f"{name}self_attn.q_proj.weight": matrix(hidden, hidden),
            f"{name}self_attn.k_proj.weight": matrix(hidden // 2, hidden),
            f"{name}self_attn.v_proj.weight": matrix(hidden // 2, hidden),
            f"{name}self_attn.o_proj.weight": matrix(hidden, hidden),
            f"{name}mlp.gate_proj.weight": matrix(2 * hidden, hidden),
            f"{name}mlp.up_proj.weight": matrix(2 * hidden, hidden),
            f"{name}mlp.down_proj.weight": matrix(hidden, 2 * hidden),
            f"{name}input_layernorm.weight": one,
            f"{name}post_attention_layernorm.weight": one,
        }
    return out


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
