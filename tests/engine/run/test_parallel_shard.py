"""The parts of a model, each on a thread of its own, with real exchanges between them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from agentkv.engine.config import EngineConfig
from agentkv.engine.errors import InvalidRequest, UnsupportedModel
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.config import ModelConfig
from agentkv.engine.model.linear import Linear
from agentkv.engine.model.llama import Llama
from agentkv.engine.model.load import LoadedModel, load_model
from agentkv.engine.model.shard import Shard, ShardWeights
from agentkv.engine.model.shard_llama import ShardedLlama, shareable
from agentkv.engine.model.weights import Weights
from agentkv.engine.run.backends import make_runner
from agentkv.engine.run.calibrate import calibrate, fp8_scales
from agentkv.engine.run.device_runner import DeviceRunner, prepare
from agentkv.engine.run.parallel_group import Group, PeerLost
from agentkv.engine.run.runner import ModelRunner
from agentkv.kernels.fp8 import FP8
from tests.engine.run.fake_device import FakeDevice

T = TypeVar("T")
CPU = torch.device("cpu")
FOUR = {"num_key_value_heads": 4, "num_attention_heads": 8}

MODELS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "llama-tied": (2, "LlamaConfig", {"tie_word_embeddings": True}),
    "llama-biases": (4, "LlamaConfig", {**FOUR, "attention_bias": True, "mlp_bias": True}),
    "llama-three": (
        3,
        "LlamaConfig",
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3},
    ),
    "mistral-window": (2, "MistralConfig", {"sliding_window": 20}),
    "qwen2-bias": (2, "Qwen2Config", {}),
    "qwen3-bias": (4, "Qwen3Config", {**FOUR, "head_dim": 16, "attention_bias": True}),
    "smollm3": (2, "SmolLM3Config", {"no_rope_layer_interval": 2}),
}


def together(world: int, meeting: Path, work: Callable[[Group], T]) -> list[T]:
    """`work` on every rank at once; what each returns."""

    def one(rank: int) -> T:
        torch.set_num_threads(1)
        group = Group(Shard(rank, world), CPU, 30)
        group.connect(meeting)
        with torch.inference_mode():
            return work(group)

    with ThreadPoolExecutor(world) as pool:
        return [f.result() for f in [pool.submit(one, rank) for rank in range(world)]]


def pool_of(
    model: LoadedModel, dtype: torch.dtype = torch.float32, scales: torch.Tensor | None = None
) -> KVPool:
    c = model.config
    return KVPool(
        layers=c.num_layers,
        slots=256,
        kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        dtype=dtype,
        scales=scales,
    )


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("name", MODELS)
def test_parts_give_what_the_whole_gives(
    name: str, fused: bool, tiny: Any, part: Any, batch: Any, paged: Any, tmp_path: Path
) -> None:
    world, config, options = MODELS[name]
    path = tiny(config, **options)[0]
    rng = np.random.default_rng(3)
    ids = rng.integers(3, 131, 60).astype(np.int32)
    slots = paged(rng, 60, 4, 256)
    steps = [  # a prefill in two pieces, without and with logits, and a decode
        batch(part(ids[:30], 0, slots), all_rows=False),
        batch(part(ids[30:59], 30, slots)),
        batch(part(ids[59:], 59, slots)),
    ]
    none = np.empty(0, dtype=np.int32)
    steps[0] = type(steps[0])(
        **{n: getattr(steps[0], n) for n in steps[0].__slots__} | {"logit_rows": none}
    )

    whole = load_model(path, dtype=torch.float32)
    wanted = pool_of(whole)
    runner = ModelRunner(whole, wanted)
    expected = [runner.forward(step) for step in steps]

    def work(group: Group) -> tuple[list[torch.Tensor], KVPool]:
        model = ShardedLlama.load_part(path, group, dtype=torch.float32, device=CPU)
        if fused:
            model.fuse()
        pool = pool_of(model)
        own = ModelRunner(model, pool)
        return [own.forward(step) for step in steps], pool

    found = together(world, tmp_path / "meeting", work)
    for got, want in zip(found[0][0], expected, strict=True):
        assert got.shape == want.shape
        assert torch.allclose(got, want, atol=1e-4, rtol=1e-4)
        assert torch.equal(got.argmax(-1), want.argmax(-1))
    heads = whole.config.num_kv_heads // world
    used = torch.from_numpy(slots.astype(np.int64))
    for rank, (logits, pool) in enumerate(found):
        assert pool.kv_heads == heads
        assert rank == 0 or not any(one.numel() for one in logits)
        for layer in range(pool.layers):
            mine = wanted.layer(layer)[:, used, rank * heads : (rank + 1) * heads]
            assert mine.abs().max() > 0.1
            assert torch.allclose(pool.layer(layer)[:, used], mine, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kv", ["auto", "fp8"])
def test_ranks_on_devices(
    kv: str, deterministic: bool, tiny: Any, part: Any, batch: Any, paged: Any, tmp_path: Path
) -> None:
    """The code of a GPU's path, on devices that are none: fused kernels, tables, padded rows."""
    path = tiny("Qwen3Config", head_dim=16, attention_bias=True)[0]
    config = EngineConfig(page_size=16, cuda_graphs=False, deterministic=deterministic)
    rng = np.random.default_rng(4)
    ids, others = (rng.integers(3, 131, n).astype(np.int32) for n in (70, 90))
    slots = paged(rng, 176, 16, 256)
    mine, theirs = slots[:80], slots[80:]
    steps = [
        batch(part(ids[:50], 0, mine), part(others[:33], 0, theirs)),
        batch(part(ids[50:51], 50, mine), part(others[33:80], 33, theirs), all_rows=False),
        *(
            batch(part(ids[i : i + 1], i, mine), part(others[i + 29 : i + 30], i + 29, theirs))
            for i in range(51, 57)
        ),
    ]

    def run(model: LoadedModel, device: FakeDevice) -> list[torch.Tensor]:
        prepare(model, deterministic=deterministic)
        scales = calibrate(model, [others]) if kv == "fp8" else None
        pool = pool_of(model, dtype=torch.float32 if scales is None else FP8, scales=scales)
        own, _ = make_runner(config, model, pool, device, "triton", 256)
        assert isinstance(own, DeviceRunner)
        found = [own.forward(step).clone() for step in steps]
        device.check()
        return found

    expected = run(load_model(path, dtype=torch.float32), FakeDevice())

    def work(group: Group) -> list[torch.Tensor]:
        model = ShardedLlama.load_part(path, group, dtype=torch.float32, device=CPU)
        return run(model, FakeDevice())

    first, second = together(2, tmp_path / "meeting", work)
    for got, none, want in zip(first, second, expected, strict=True):
        assert none.shape == (len(want), 0)
        # A number at the edge of two FP8 codes may be stored as either.
        assert torch.allclose(got, want, atol=1e-2 if kv == "fp8" else 1e-4, rtol=1e-4)
        assert torch.equal(got.argmax(-1), want.argmax(-1))


def test_a_rank_reads_its_part_only(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny("LlamaConfig", tie_word_embeddings=False)[0]
    read: list[str] = []
    take = Weights.take

    def noted(self: Weights, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        read.append(name)
        return take(self, name, shape)

    monkeypatch.setattr(Weights, "take", noted)
    model = ShardedLlama.load_part(
        path, Group(Shard(1, 2), CPU, 30), dtype=torch.float32, device=CPU
    )
    assert read
    assert all("norm" in name or "embed_tokens" in name for name in read)
    whole = load_model(path, dtype=torch.float32)
    assert type(whole) is Llama
    for name in ("qkv", "out", "gate", "up", "down"):
        mine, all_of_it = getattr(model.layers[0], name), getattr(whole.layers[0], name)
        assert isinstance(mine, Linear)
        assert 2 * mine.outputs * mine.inputs == all_of_it.outputs * all_of_it.inputs, name
    assert model.head.outputs == 131 - 66


def test_scales_of_a_rank_are_those_of_its_heads(tiny: Any, tmp_path: Path) -> None:
    path = tiny("LlamaConfig")[0]
    texts = [np.arange(3, 93, dtype=np.int32), np.arange(120, 20, -1, dtype=np.int32)]
    whole = load_model(path, dtype=torch.float32)
    expected = calibrate(whole, texts)
    assert not torch.equal(expected[:, :, :1], expected[:, :, 1:])

    marked = tmp_path / "marked"
    shutil.copytree(path, marked)
    tensors = load_file(marked / "model.safetensors")
    own = torch.rand(4, 2, 2) + 0.5
    for layer in range(4):
        for side, name in enumerate(("k_scale", "v_scale")):
            tensors[f"model.layers.{layer}.self_attn.{name}"] = own[layer, side].clone()
    save_file(tensors, marked / "model.safetensors", {"format": "pt"})

    def work(group: Group) -> tuple[torch.Tensor, torch.Tensor]:
        model = ShardedLlama.load_part(path, group, dtype=torch.float32, device=CPU)
        nobody: Any = None  # no text is needed where the checkpoint has scales
        return calibrate(model, texts), fp8_scales(model, nobody, marked, group.shard)

    for rank, (calibrated, given) in enumerate(together(2, tmp_path / "meeting", work)):
        assert torch.equal(calibrated, expected[:, :, rank : rank + 1])
        assert torch.equal(given, own[:, :, rank : rank + 1])


def test_what_cannot_be_shared_out_is_refused(tiny: Any, tmp_path: Path) -> None:
    path = tiny("LlamaConfig", num_key_value_heads=4, intermediate_size=98)[0]
    assert shareable(path, 2).num_kv_heads == 4
    with pytest.raises(InvalidRequest, match=r"98 columns.* it may be 1, 2\.") as caught:
        shareable(path, 4)
    assert caught.value.param == "tensor_parallel"
    with pytest.raises(InvalidRequest, match="4 KV heads"):
        shareable(path, 3)
    other = tiny("GPTNeoXConfig", num_key_value_heads=4)[0]
    with pytest.raises(InvalidRequest, match="transformers"):
        shareable(other, 2)


def test_a_misshapen_tensor_is_named(tiny: Any) -> None:
    path = tiny("LlamaConfig")[0]
    with ShardWeights(path, Shard(1, 2)) as weights:
        name = "model.layers.0.self_attn.k_proj.weight"
        assert weights.take(name, (16, 64)).shape == (16, 64)
        with pytest.raises(UnsupportedModel, match=r"k_proj.weight has shape \(32, 64\), of which"):
            weights.take(name, (32, 64))
        with pytest.raises(UnsupportedModel, match="lacks the tensor"):
            weights.take("model.layers.9.self_attn.k_proj.weight", (16, 64))


def test_every_row_belongs_to_one_rank() -> None:
    for size in (1, 3, 7, 131, 49152):
        for world in (1, 2, 3, 4, 8):
            rows = [i for rank in range(world) for i in range(size)[Shard(rank, world).part(size)]]
            assert rows == list(range(size))
    whole = ModelConfig.parse(
        {
            "architectures": ["LlamaForCausalLM"],
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_hidden_layers": 1,
            "hidden_size": 64,
            "intermediate_size": 96,
            "vocab_size": 131,
        }
    )
    local = Shard(1, 4).local(whole)
    assert (local.num_heads, local.num_kv_heads, local.intermediate_size) == (2, 1, 24)
    assert (local.head_dim, local.hidden_size, local.vocab_size) == (8, 64, 131)


def test_an_exchange_without_the_others_ends(tmp_path: Path) -> None:
    group = Group(Shard(0, 2), CPU, 1)
    with pytest.raises(PeerLost, match="did not find each other"):
        group.connect(tmp_path / "meeting")
