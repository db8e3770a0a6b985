"""The same bits, warm or cold, alone or in a batch, wherever the prefill was cut: in float32, over
a pool of float32 or of FP8."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.kv.pool import KV_DTYPES, KVPool
from agentkv.engine.model.load import load_model
from agentkv.engine.run.calibrate import calibrate
from agentkv.engine.run.runner import ModelRunner

SLOTS = 4096
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "LlamaConfig",
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2},
    ),
    "llama-group-1": ("LlamaConfig", {"num_key_value_heads": 4}),
    "mistral-window": ("MistralConfig", {"sliding_window": 100}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "smollm3-bias": ("SmolLM3Config", {"no_rope_layer_interval": 2, "attention_bias": True}),
}


class Bench:
    """One model, one pool full of other requests' numbers, and the cold answer to `ids`."""

    def __init__(self, path: Any, part: Any, batch: Any, kv: str = "float32") -> None:
        self.part, self.batch = part, batch
        self.model = load_model(path, dtype=torch.float32)
        c = self.model.config
        self.pool = KVPool(
            layers=c.num_layers,
            slots=SLOTS,
            kv_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            dtype=KV_DTYPES[kv],
            scales=calibrate(self.model, [np.arange(90, dtype=np.int32)]) if kv == "fp8" else None,
        )
        for i in range(c.num_layers):
            noise = torch.randn(self.pool.layer(i).shape) * 3
            if kv == "fp8":
                noise = noise.clamp(-448, 448).to(self.pool.dtype)
            self.pool.layer(i).copy_(noise)
        self.runner = ModelRunner(self.model, self.pool)
        self.rng = np.random.default_rng(5)
        self.ids = self.random_ids(330)
        self.cold = self.forward((self.ids, 0, np.arange(17, 17 + len(self.ids))))

    def random_ids(self, count: int) -> Any:
        return self.rng.integers(3, self.model.config.vocab_size, count).astype(np.int32)

    def forward(self, *parts: tuple[Any, int, Any]) -> torch.Tensor:
        return self.runner.forward(self.batch(*(self.part(*p) for p in parts)))

    def scattered(self, count: int) -> Any:
        return 1000 + self.rng.permutation(SLOTS - 1000)[:count]


@pytest.fixture(scope="module", params=[*MODELS, "llama-fp8", "mistral-window-fp8"])
def bench(request: pytest.FixtureRequest, tiny: Any, part: Any, batch: Any) -> Bench:
    name = request.param.removesuffix("-fp8")
    config, options = MODELS[name]
    kv = "float32" if name == request.param else "fp8"
    return Bench(tiny(config, **options)[0], part, batch, kv)


def test_this_machine_promises_exactness(bench: Bench) -> None:
    assert bench.runner.bit_exact


@pytest.mark.parametrize(
    "cuts", [[1], [15, 16, 17, 32], [255, 256, 257], [128, 300], [100, 101, 102, 103, 329]]
)
def test_chunked_prefill_is_exact(bench: Bench, cuts: list[int]) -> None:
    slots = bench.scattered(len(bench.ids))
    edges = [0, *cuts, len(bench.ids)]
    for low, high in pairwise(edges):
        got = bench.forward((bench.ids[low:high], low, slots))
        assert torch.equal(got, bench.cold[low:high]), (low, high)


def test_long_context_is_exact(bench: Bench) -> None:
    ids = bench.random_ids(1300)
    slots = bench.scattered(1300)
    cold = bench.forward((ids, 0, np.arange(17, 1317)))
    for low, high in pairwise([0, 90, 700, 1000, 1299, 1300]):
        assert torch.equal(bench.forward((ids[low:high], low, slots)), cold[low:high])
    neighbour = np.arange(300, 900)
    bench.forward((bench.ids, 0, neighbour))
    both = bench.forward((bench.ids[:1], 330, neighbour), (ids[1299:], 1299, slots))
    assert torch.equal(both[1], cold[1299])


def test_decode_one_by_one_is_exact(bench: Bench) -> None:
    slots = np.arange(500, 900)
    bench.forward((bench.ids[:250], 0, slots))
    for at in range(250, 262):  # across the edge of a tile
        assert torch.equal(bench.forward((bench.ids[at : at + 1], at, slots))[0], bench.cold[at])


@pytest.mark.parametrize("others", [0, 2, 7])
def test_batched_decode_and_prefill_are_exact(bench: Bench, others: int) -> None:
    lengths = [3, 300, 1, 257, 40, 256, 90][:others]
    neighbours = [
        (bench.random_ids(n), np.arange(1000 + 400 * i, 1400 + 400 * i))
        for i, n in enumerate(lengths)
    ]
    slots = np.concatenate(
        [np.arange(40, 240), np.arange(600, 800)]
    )  # two runs: a shared prefix, then its own
    first = bench.forward(
        *((ids, 0, where) for ids, where in neighbours), (bench.ids[:200], 0, slots)
    )
    assert torch.equal(first[-200:], bench.cold[:200])
    # A neighbour decodes while this sequence's next chunk is prefilled, and then both decode.
    step = [(bench.random_ids(1), len(ids), where) for ids, where in neighbours]
    mixed = bench.forward(*step, (bench.ids[200:329], 200, slots))
    assert torch.equal(mixed[-129:], bench.cold[200:329])
    step = [(bench.random_ids(1), len(ids) + 1, where) for ids, where in neighbours]
    last = bench.forward(*step, (bench.ids[329:], 329, slots))
    assert torch.equal(last[-1], bench.cold[329])


def test_shared_prefix_in_one_decode_batch_is_exact(bench: Bench) -> None:
    bench.forward((bench.ids[:320], 0, np.arange(320)))
    step = []
    for i in range(8):  # all read the same slots of the first 320 positions
        step.append((bench.ids[320:321], 320, np.concatenate([np.arange(320), [2000 + 16 * i]])))
    got = bench.forward(*step)
    assert all(torch.equal(row, bench.cold[320]) for row in got)


def test_broken_numbers_of_one_request_stay_its_own(bench: Bench) -> None:
    slots = np.arange(3000, 3400)
    bench.forward((bench.ids[:100], 0, slots))
    weights = bench.model
    row = weights.embedding[5].clone()  # type: ignore[attr-defined]
    weights.embedding[5] = float("inf")  # type: ignore[attr-defined]
    try:
        # Its slots lie right behind the end of the healthy sequence: inside the same tile view.
        bench.forward((np.array([5, 5], dtype=np.int32), 0, np.arange(3101, 3103)))
        for i in range(bench.pool.layers):
            assert bool(torch.isfinite(bench.pool.layer(i).float()).all())
    finally:
        weights.embedding[5] = row  # type: ignore[attr-defined]
    assert torch.equal(bench.forward((bench.ids[100:101], 100, slots))[0], bench.cold[100])


def test_adapted_models_do_not_promise_bits_and_agree_to_rounding(
    tiny: Any, part: Any, batch: Any
) -> None:
    adapted = Bench(tiny("Olmo2Config")[0], part, batch)
    assert not adapted.model.config.own
    assert not adapted.runner.bit_exact
    slots = adapted.scattered(330)
    adapted.forward((adapted.ids[:200], 0, slots))
    got = adapted.forward(
        (adapted.random_ids(9), 0, np.arange(400, 409)), (adapted.ids[200:], 200, slots)
    )
    assert float((got[9:] - adapted.cold[200:]).abs().max()) < 1e-4


@pytest.mark.parametrize("config", ["LlamaConfig", "Olmo2Config"])
def test_a_chunk_without_wanted_logits_still_fills_the_pool(
    config: str, tiny: Any, part: Any, batch: Any
) -> None:
    bench = Bench(tiny(config)[0], part, batch)
    slots = np.arange(600, 1000)
    whole = batch(part(bench.ids[:100], 0, slots))
    silent = type(whole)(
        **{f: getattr(whole, f) for f in whole.__slots__ if f != "logit_rows"},
        logit_rows=whole.logit_rows[:0],
    )
    assert bench.runner.forward(silent).shape == (0, bench.model.config.vocab_size)
    got = bench.forward((bench.ids[100:101], 100, slots))[0]
    assert float((got - bench.cold[100]).abs().max()) < 1e-4
