"""Scales: the same ones at every start, large enough, and a checkpoint's own where it has some."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from agentkv.engine.model.load import load_model
from agentkv.engine.run.calibrate import (
    HEADROOM,
    TOKENS,
    calibrate,
    fp8_scales,
    of_checkpoint,
    scales_for,
    token_ids,
)
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.kernels.fp8 import LARGEST


def sequences(vocab: int = 131) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocab, n).astype(np.int32) for n in (40, 7, 1)]


def powers(scales: torch.Tensor) -> bool:
    return bool((torch.frexp(scales).mantissa == 0.5).all())


def test_a_scale_holds_twice_what_was_seen_and_not_four_times_as_much_again() -> None:
    most = torch.tensor([[0.0, 1.0, 3.7], [224.0, 448.0, 1e5]])
    found = scales_for(most)
    assert powers(found)
    loud = most > 0
    assert bool((found * LARGEST >= HEADROOM * most).all())
    assert bool((found * LARGEST < 2 * HEADROOM * most)[loud].all())
    assert float(found[0, 0]) > 0  # a silent head


@pytest.mark.parametrize("config", ["LlamaConfig", "Olmo2Config"])
def test_the_same_scales_whatever_computes_them(tiny: Any, config: str) -> None:
    path, _ = tiny(config)
    threads = torch.get_num_threads()
    found = []
    try:
        for count, dtype in ((1, torch.float32), (2, torch.float32), (1, torch.bfloat16)):
            torch.set_num_threads(count)
            found.append(calibrate(load_model(path, dtype=dtype), sequences()))
    finally:
        torch.set_num_threads(threads)
    assert found[0].shape == (4, 2, 2) and powers(found[0])
    assert torch.equal(found[0], found[1])
    # Other arithmetic may round a number over the edge of a power of two, and no further.
    assert bool((found[0] / found[2]).log2().abs().le(1).all())


def test_each_head_has_its_own(tiny: Any, tmp_path: Path) -> None:
    path, _ = tiny("LlamaConfig")
    shutil.copytree(path, tmp_path / "loud")
    weights = load_file(path / "model.safetensors")
    name = "model.layers.2.self_attn.v_proj.weight"
    weights[name][16:32] *= 128  # the second of two heads
    save_file(weights, tmp_path / "loud" / "model.safetensors", metadata={"format": "pt"})
    plain, loud = (
        calibrate(load_model(p, dtype=torch.float32), sequences())
        for p in (path, tmp_path / "loud")
    )
    assert float(loud[2, 1, 1]) == 128 * float(plain[2, 1, 1])
    assert torch.equal(loud[2, 1, 0], plain[2, 1, 0]) and torch.equal(loud[:2], plain[:2])


def test_the_text_fits_the_model(tiny_llama_dir: Path) -> None:
    tokenizer = Tokenizer.load(tiny_llama_dir)
    found = token_ids(tokenizer, 50, TOKENS)
    assert len(found) == 5 and all(len(ids) == TOKENS for ids in found)
    assert all(ids.dtype == np.int32 and ids.min() >= 0 and ids.max() < 50 for ids in found)
    assert [len(ids) for ids in token_ids(tokenizer, 50, 20)] == [20] * 5
    again = token_ids(Tokenizer.load(tiny_llama_dir), 50, TOKENS)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_a_checkpoint_with_scales(
    tiny: Any, tiny_llama_dir: Path, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    path, _ = tiny("LlamaConfig")
    target = tmp_path / "scaled"
    shutil.copytree(path, target)
    weights = load_file(path / "model.safetensors")
    assert of_checkpoint(path, 4, 2) is None
    for layer in range(4):
        for side, name in enumerate(("k_scale", "v_scale")):
            key = f"model.layers.{layer}.self_attn.{name}"
            weights[key] = torch.full(shape, 0.01 * (1 + layer + side))
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    model, tokenizer = load_model(target, dtype=torch.float32), Tokenizer.load(tiny_llama_dir)
    found = fp8_scales(model, tokenizer, target)
    assert found.shape == (4, 2, 2)
    assert torch.allclose(found[3, 1], torch.tensor([0.05, 0.05]))
    # Scales that cannot be right are not believed.
    weights[key] = torch.zeros(shape)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    assert of_checkpoint(target, 4, 2) is None
    assert powers(fp8_scales(model, tokenizer, target))
