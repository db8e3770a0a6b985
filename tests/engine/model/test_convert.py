"""GGUF to a model directory: the same numbers, the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine.errors import PullFailed, UnsupportedModel
from agentkv.engine.model import convert

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def write_gguf(
    path: Path, *, pre: str = "smollm", tensors: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A tiny llama GGUF with random float32 weights that bfloat16 holds exactly.

    Returns them by Hugging Face name and in Hugging Face row order. The way into GGUF's order is
    written out row by row here, so that it shares nothing with the way back under test.
    """
    import gguf
    from tokenizers import pre_tokenizers

    hidden, inner, layers, heads, kv_heads, head = 32, 48, 2, 4, 2, 8
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens += ["th", "the", "Ġt"]
    rng = np.random.default_rng(7)

    def weight(*shape: int) -> Any:
        bits = rng.normal(size=shape).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)

    def interleave(rows: Any, count: int) -> Any:
        out = np.empty_like(rows)
        for h in range(count):
            for i in range(head // 2):
                out[h * head + 2 * i] = rows[h * head + i]
                out[h * head + 2 * i + 1] = rows[h * head + head // 2 + i]
        return out

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
    writer.add_token_merges(["t h", "th e", "Ġ t"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)

    want: dict[str, Any] = {}

    def add(gguf_name: str, hf_name: str, values: Any, turned: int = 0) -> None:
        want[hf_name] = values
        writer.add_tensor(gguf_name, interleave(values, turned) if turned else values)

    add("token_embd.weight", "model.embed_tokens.weight", weight(len(tokens), hidden))
    add("output_norm.weight", "model.norm.weight", weight(hidden))
    for i in range(layers):
        for gguf_name, hf_name, shape, turned in (
            ("attn_norm", "input_layernorm", (hidden,), 0),
            ("attn_q", "self_attn.q_proj", (heads * head, hidden), heads),
            ("attn_k", "self_attn.k_proj", (kv_heads * head, hidden), kv_heads),
            ("attn_v", "self_attn.v_proj", (kv_heads * head, hidden), 0),
            ("attn_output", "self_attn.o_proj", (hidden, heads * head), 0),
            ("ffn_norm", "post_attention_layernorm", (hidden,), 0),
            ("ffn_gate", "mlp.gate_proj", (inner, hidden), 0),
            ("ffn_up", "mlp.up_proj", (inner, hidden), 0),
            ("ffn_down", "mlp.down_proj", (hidden, inner), 0),
        ):
            values = weight(*shape)
            add(f"blk.{i}.{gguf_name}.weight", f"model.layers.{i}.{hf_name}.weight", values, turned)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return want


@pytest.fixture
def converted(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    want = write_gguf(tmp_path / "tiny.gguf")
    out = tmp_path / "out"
    out.mkdir()
    convert.convert(tmp_path / "tiny.gguf", out)
    return out, want


def test_weights_come_back_bit_for_bit(converted: tuple[Path, dict[str, Any]]) -> None:
    import torch
    from safetensors.torch import load_file

    out, want = converted
    got = load_file(out / "model.safetensors")
    assert set(got) == set(want)
    for name, values in want.items():
        assert got[name].dtype == torch.bfloat16
        assert np.array_equal(got[name].float().numpy(), values), name


def test_transformers_loads_it_with_nothing_missing(converted: tuple[Path, dict[str, Any]]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(converted[0], output_loading_info=True)
    model, loading = loaded
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert model.dtype == torch.bfloat16
    config = model.config
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 8)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters["rope_theta"] == 10000.0
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_tokenizer_splits_digits_and_keeps_control_tokens(
    converted: tuple[Path, dict[str, Any]],
) -> None:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    tokenizer = Tokenizer.from_file(str(converted[0] / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>the 2026<|im_end|>").tokens == [
        "<|im_start|>", "the", "Ġ", "2", "0", "2", "6", "<|im_end|>",
    ]  # fmt: skip
    theirs = AutoTokenizer.from_pretrained(converted[0])
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )
    for text in ("the 10 then\n\n99", " é 漢字 🙂 <|im_end|>the"):
        ids = tokenizer.encode(text).ids
        assert ids == theirs(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_original_template_is_kept(converted: tuple[Path, dict[str, Any]]) -> None:
    assert (converted[0] / "chat_template.original.jinja").read_text() == TEMPLATE


def test_other_files_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "other.gguf", pre="llama-bpe")
    with pytest.raises(UnsupportedModel, match="llama-bpe"):
        convert.convert(tmp_path / "other.gguf", tmp_path)
    write_gguf(tmp_path / "more.gguf", tensors={"blk.0.mystery.weight": np.ones(4, np.float32)})
    with pytest.raises(UnsupportedModel, match=r"blk\.0\.mystery\.weight"):
        convert.convert(tmp_path / "more.gguf", tmp_path)
    (tmp_path / "broken.gguf").write_bytes(b"not a gguf file, but long enough to look for a header")
    with pytest.raises(PullFailed, match="not a readable GGUF file"):
        convert.convert(tmp_path / "broken.gguf", tmp_path)


def test_the_embedded_model_knows_the_capital_of_france(smollm2_dir: Path) -> None:
    """The one check of the converted weights against the world; the rest compares with them."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(smollm2_dir)
    model: Any = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    answer = tokenizer.decode(out[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."
