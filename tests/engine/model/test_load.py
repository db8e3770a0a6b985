"""What is loaded, what is refused and why, and which weights count as the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentkv.engine.errors import UnsupportedModel
from agentkv.engine.model.config import ModelConfig
from agentkv.engine.model.fingerprint import fingerprint
from agentkv.engine.model.load import load_model
from agentkv.engine.model.weights import Weights


def edit(path: Path, name: str = "config.json", **changes: Any) -> None:
    raw = json.loads((path / name).read_text())
    raw.update(changes)
    (path / name).write_text(json.dumps({k: v for k, v in raw.items() if v != "absent"}))


@pytest.fixture
def copy(tiny: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    def make(config: str = "LlamaConfig", **options: Any) -> Path:
        return Path(shutil.copytree(tiny(config, **options)[0], tmp_path / "model"))

    return make


def test_old_and_new_spelling_of_the_rotation_are_one(copy: Any) -> None:
    path = copy()
    new = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
    edit(path, rope_parameters=new)
    first = ModelConfig.load(path)
    edit(
        path,
        rope_parameters="absent",
        rope_theta=5000.0,
        rope_scaling={"type": "linear", "factor": 4.0},
    )
    assert ModelConfig.load(path) == first
    assert first.rope is not None and first.rope.theta == 5000.0 and first.rope.factor == 4.0


def test_end_tokens_come_from_the_generation_config_first(copy: Any) -> None:
    path = copy()
    assert ModelConfig.load(path).eos_token_ids == (2,)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    assert ModelConfig.load(path).eos_token_ids == (2, 7)


def test_windows_follow_each_architectures_rule(copy: Any) -> None:
    raw = json.loads((copy() / "config.json").read_text())
    mistral = {**raw, "architectures": ["MistralForCausalLM"]}
    assert (
        ModelConfig.parse(mistral).layer_windows == (4096,) * 4
    )  # its default, when the key is absent
    assert ModelConfig.parse({**mistral, "sliding_window": None}).layer_windows == (None,) * 4
    qwen = {
        **raw,
        "architectures": ["Qwen2ForCausalLM"],
        "sliding_window": 8,
        "max_window_layers": 3,
    }
    assert (
        ModelConfig.parse(qwen).layer_windows == (None,) * 4
    )  # not used unless use_sliding_window
    assert ModelConfig.parse({**qwen, "use_sliding_window": True}).layer_windows == (
        None,
        None,
        None,
        8,
    )
    types = ["sliding_attention", "full_attention"] * 2
    found = ModelConfig.parse({**qwen, "use_sliding_window": True, "layer_types": types})
    assert found.layer_windows == (8, None, 8, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "x.Y"}}, "never runs code"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantised \(gptq\)"),
        ({"is_encoder_decoder": True}, "decoder-only"),
        ({"architectures": "absent"}, "names no architecture"),
        ({"layer_types": ["linear_attention"] * 4}, "not keys and values"),
        ({"num_key_value_heads": 1}, "config.json says"),
        ({"num_hidden_layers": 5}, "lacks the tensor"),
        ({"architectures": ["NoSuchModel"], "model_type": "nosuch"}, "cannot load NoSuchModel"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    copy: Any, changes: dict[str, Any], message: str
) -> None:
    path = copy()
    edit(path, **changes)
    with pytest.raises(UnsupportedModel, match=message):
        load_model(path, dtype=torch.float32)


def test_pickled_weights_are_never_loaded(copy: Any) -> None:
    path = copy()
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"not even a pickle")
    with pytest.raises(UnsupportedModel, match=r"pytorch_model\.bin, a pickle format"):
        load_model(path, dtype=torch.float32)


def test_broken_files_are_refused(copy: Any) -> None:
    path = copy()
    (path / "model.safetensors").write_bytes(b"garbage")
    with pytest.raises(UnsupportedModel, match="not a readable safetensors"):
        load_model(path, dtype=torch.float32)
    (path / "config.json").write_text("{")
    with pytest.raises(UnsupportedModel, match="cannot be read"):
        load_model(path, dtype=torch.float32)
    with pytest.raises(UnsupportedModel, match="not a model directory"):
        load_model(path / "nothing", dtype=torch.float32)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ("GptOssConfig", {"num_local_experts": 2, "head_dim": 16}, "attention sinks"),
        ("MambaConfig", {}, "transformers' attention interface"),
        ("BertConfig", {}, "not causal"),
    ],
)
def test_the_adapter_refuses_what_it_cannot_cache(
    copy: Any, config: str, options: Any, message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        load_model(copy(config, **options), dtype=torch.float32)


def test_sharded_weights_are_read_through_their_index(tiny: Any, tmp_path: Path) -> None:
    single, model = tiny("LlamaConfig")
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    with Weights(single) as one, Weights(tmp_path) as many:
        for name in index["weight_map"]:
            assert torch.equal(one.take(name), many.take(name))
    (tmp_path / sorted(index["weight_map"].values())[0]).unlink()
    with pytest.raises(UnsupportedModel, match="lacks model-00001"):
        load_model(tmp_path, dtype=torch.float32)
    index["weight_map"] = dict.fromkeys(index["weight_map"], "../elsewhere.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnsupportedModel, match="outside its directory"):
        load_model(tmp_path, dtype=torch.float32)


def test_fingerprint_tells_weights_apart_and_ignores_what_does_not_matter(copy: Any) -> None:
    path = copy()
    first = fingerprint(path)
    assert len(first) == 32 and fingerprint(path) == first
    edit(path, transformers_version="0.0", torch_dtype="float16")
    assert fingerprint(path) == first
    edit(path, rms_norm_eps=1e-3)
    assert fingerprint(path) != first
    edit(path, rms_norm_eps=1e-6)
    assert fingerprint(path) == first
    file = path / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1  # one bit of the last tensor
    file.write_bytes(content)
    assert fingerprint(path) != first


def test_fingerprint_does_not_need_to_remember(copy: Any) -> None:
    path = copy()
    first = fingerprint(path)
    (memo,) = path.glob(".agentkv-fingerprint*")
    memo.write_text("broken")
    assert fingerprint(path) == first
    memo.unlink()
    assert fingerprint(path) == first


def test_bfloat16_is_close_to_float32(tiny: Any, part: Any, batch: Any) -> None:
    import numpy as np

    from agentkv.engine.kv.pool import KVPool
    from agentkv.engine.run.runner import ModelRunner

    path, _ = tiny("Qwen3Config", head_dim=32)
    ids = np.arange(3, 60, dtype=np.int32)
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = load_model(path, dtype=dtype)
        pool = KVPool(layers=4, slots=64, kv_heads=2, head_dim=32, dtype=dtype)
        runner = ModelRunner(model, pool)
        found[dtype] = torch.cat(
            [
                runner.forward(batch(part(ids[a:b], a, np.arange(64))))
                for a, b in ((0, 40), (40, 41), (41, 57))
            ]
        )
    a, b = found[torch.float32], found[torch.bfloat16]
    assert a.dtype == b.dtype == torch.float32
    assert float((a - b).norm() / a.norm()) < 0.05
