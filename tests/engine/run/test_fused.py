"""A Llama by fused kernels (their references here) against its plain forward, over the device's runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.attention.triton import TritonAttention
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model import llama
from agentkv.engine.model.fused import FIXED_ROWS, alike
from agentkv.engine.model.linear import Linear
from agentkv.engine.model.load import load_model
from agentkv.engine.run.device_runner import DeviceRunner, prepare
from agentkv.engine.run.runner import ModelRunner
from tests.engine.run.fake_device import FakeDevice

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2-bias": ("Qwen2Config", {}),
    "qwen3-norms": ("Qwen3Config", {"head_dim": 32}),
    "mistral-window": ("MistralConfig", {"sliding_window": 20}),
    "smollm3": ("SmolLM3Config", {"no_rope_layer_interval": 2, "attention_bias": True}),
    "llama-mlp-bias": ("LlamaConfig", {"mlp_bias": True}),
}


def pool_of(model: Any) -> KVPool:
    c = model.config
    return KVPool(
        layers=c.num_layers,
        slots=512,
        kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        dtype=torch.float32,
    )


def device_runner(model: Any, *, deterministic: bool = False) -> DeviceRunner:
    prepare(model, deterministic=deterministic)
    return DeviceRunner(
        model,
        pool_of(model),
        TritonAttention(16, deterministic=deterministic),
        FakeDevice(),
        page_size=16,
        graphs=True,
        max_running=4,
        max_len=256,
    )


def steps(part: Any, batch: Any) -> list[Any]:
    """Two sequences: prefill in pieces, then three decoding steps with a padded row."""
    rng = np.random.default_rng(0)
    one, two, three = (rng.integers(3, 130, n).astype(np.int32) for n in (60, 40, 30))
    a, b, c = np.arange(64), np.arange(128, 192), np.arange(256, 320)
    first = [
        batch(part(one[:33], 0, a), part(two[:17], 0, b)),
        batch(
            part(two[17:18], 17, b), part(one[33:50], 33, a), part(three[:20], 0, c), all_rows=False
        ),
    ]
    return first + [
        batch(part(one[50 + i : 51 + i], 50 + i, a), part(two[18 + i : 19 + i], 18 + i, b),
              part(three[20 + i : 21 + i], 20 + i, c))
        for i in range(3)
    ]  # fmt: skip


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_logits_but_for_rounding(
    name: str,
    joint: bool,
    deterministic: bool,
    tiny: Any,
    part: Any,
    batch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, options = MODELS[name]
    path: Path = tiny(config, **options)[0]
    plain = load_model(path, dtype=torch.float32)
    expected = ModelRunner(plain, pool_of(plain))
    monkeypatch.setattr(llama, "joins", lambda device: joint)
    model = load_model(path, dtype=torch.float32)
    assert isinstance(model, llama.Llama)
    assert all((layer.gate_up is not None) == joint for layer in model.layers)
    runner = device_runner(model, deterministic=deterministic)
    for step in steps(part, batch):
        found = runner.forward(step)
        assert found.shape == (len(step.logit_rows), model.config.vocab_size)
        torch.testing.assert_close(found, expected.forward(step), atol=2e-4, rtol=2e-4)
    assert (runner.graphs is None) == deterministic
    if runner.graphs is not None:
        assert runner.graphs.replays == 2


def test_what_is_deterministic_is_padded_to_whole_products(
    tiny: Any, part: Any, batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(tiny("LlamaConfig")[0], dtype=torch.float32)
    runner = device_runner(model, deterministic=True)
    seen: set[int] = set()
    original = Linear.__call__

    def watched(self: Linear, x: torch.Tensor) -> torch.Tensor:
        seen.add(x.shape[0])
        return original(self, x)

    monkeypatch.setattr(Linear, "__call__", watched)
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 130, 300).astype(np.int32)
    before = [runner.pool.layer(i).clone() for i in range(runner.pool.layers)]
    runner.forward(batch(part(ids, 0, np.arange(300))))
    assert seen == {FIXED_ROWS}
    for i, old in enumerate(before):  # the rows of padding wrote nothing
        assert torch.equal(runner.pool.layer(i)[:, 300:], old[:, 300:])


def test_rows_that_are_not_alike_are_found_out() -> None:
    weight = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
    linear = Linear(weight, packed=False)
    assert alike([linear], 1)

    class Odd(Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            found = super().__call__(x)
            found[5] *= 1 + 1e-6  # a row whose place matters
            return found

    class Nosy(Linear):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) + x.mean() * 1e-6  # what the others are matters

    for kind in (Odd, Nosy):
        assert not alike([kind(weight, packed=False)], 64)


def test_a_step_without_logits_is_waited_for(tiny: Any, part: Any, batch: Any) -> None:
    model = load_model(tiny("LlamaConfig")[0], dtype=torch.float32)
    runner = device_runner(model)
    whole = batch(part(np.arange(3, 40, dtype=np.int32), 0, np.arange(64)))
    fields = {f: getattr(whole, f) for f in whole.__slots__ if f != "logit_rows"}
    silent = type(whole)(**fields, logit_rows=whole.logit_rows[:0])
    device: Any = runner._device
    assert runner.forward(silent).shape == (0, model.config.vocab_size)
    assert device.log[-2:] == ["compute: event", "host waits for compute"]
