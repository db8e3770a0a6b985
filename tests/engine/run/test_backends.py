"""Settings to a device, an attention and a pool; and what is said where they cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import torch

from agentkv.engine import Engine
from agentkv.engine.config import EngineConfig
from agentkv.engine.device import find_device
from agentkv.engine.errors import InvalidRequest
from agentkv.engine.model.config import ModelConfig
from agentkv.engine.run.backends import CPU_MARK, attention_mark, attention_name
from agentkv.engine.run.sizing import device_pool_tokens, step_bytes
from tests.engine.run.fake_device import FakeDevice

Make = Callable[..., Engine]
GIB = 1 << 30


@pytest.mark.parametrize(
    "wrong",
    [
        {"device": "gpu"},
        {"device": "cuda:x"},
        {"device": "cpu:0"},
        {"attention": "flash"},
        {"gpu_memory": 0.0},
        {"gpu_memory": 1.1},
    ],
)
def test_settings_that_mean_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        EngineConfig(**wrong)
    assert caught.value.param == next(iter(wrong))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_that_is_not_there() -> None:
    assert find_device("auto") is None and find_device("cpu") is None
    for name in ("cuda", "cuda:1"):
        with pytest.raises(InvalidRequest, match="device='cpu' runs without") as caught:
            find_device(name)
        assert caught.value.param == "device"


def test_a_gpu_that_is_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InvalidRequest, match="GPU 2, and there are 2"):
        find_device("cuda:2")


@pytest.mark.parametrize(
    ("asked", "on_cpu", "on_device"),
    [
        ("auto", "cpu", "triton"),
        ("cpu", "cpu", None),
        ("triton", "triton", "triton"),
        ("flashinfer", None, "flashinfer"),
    ],
)
def test_which_attention(asked: Any, on_cpu: str | None, on_device: str | None) -> None:
    config = EngineConfig(attention=asked)
    for device, expected in ((None, on_cpu), (FakeDevice(), on_device)):
        if expected is None:
            with pytest.raises(InvalidRequest, match="attention="):
                attention_name(config, device)
        else:
            assert attention_name(config, device) == expected


def test_a_gpu_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert attention_name(EngineConfig(), None) == "cpu"
    with pytest.raises(InvalidRequest, match="A GPU needs Triton"):
        attention_name(EngineConfig(), FakeDevice())


def test_flashinfer_is_not_deterministic() -> None:
    config = EngineConfig(attention="flashinfer", deterministic=True)
    with pytest.raises(InvalidRequest, match="triton"):
        attention_name(config, FakeDevice())


def test_namespaces_tell_apart_who_wrote_what(make_engine: Make) -> None:
    marks = [
        attention_mark(name, deterministic=fixed)
        for name, fixed in [("cpu", False), ("cpu", True), ("triton", False), ("triton", True)]
    ]
    assert marks == [CPU_MARK, CPU_MARK, "triton", "triton-deterministic"]
    plain = make_engine()._namespace("s")
    kernels = make_engine(attention="triton")._namespace("s")
    assert set(plain) ^ set(kernels) == {("attention", CPU_MARK), ("attention", "triton")}


def test_a_server_says_what_computes(make_engine: Make, serve: Callable[..., str]) -> None:
    engine = make_engine(attention="triton")
    url = serve(engine)
    for path in ("/model_info", "/server_info"):
        found = httpx.get(url + path).raise_for_status().json()
        assert (found["device"], found["attention"]) == ("cpu", "triton")
    arguments = httpx.get(url + "/server_info").json()["args"]
    assert (arguments["device"], arguments["attention"]) == ("cpu", "triton")
    assert arguments["deterministic"] is False and arguments["gpu_memory"] == 0.9
    assert arguments["cascade"] is True and arguments["cuda_graphs"] is True


def test_the_cpu_is_deterministic_in_float32_and_says_so_otherwise(make_engine: Make) -> None:
    assert make_engine(deterministic=True).bit_exact
    with pytest.raises(InvalidRequest, match="float32"):
        make_engine(deterministic=True, dtype="bfloat16")
    with pytest.raises(InvalidRequest, match="interpreter only"):
        make_engine(deterministic=True, attention="triton")
    with pytest.raises(InvalidRequest, match="host_kv_dtype"):
        make_engine(deterministic=True, host_cache="1MiB", host_kv_dtype="bfloat16")


def config(**fields: Any) -> ModelConfig:
    """An 8B's shape."""
    shape = {
        "architecture": "LlamaForCausalLM", "num_layers": 32, "num_heads": 32, "num_kv_heads": 8,
        "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256,
        "max_position": 131072, "rms_norm_eps": 1e-5, "eos_token_ids": (2,), "tie_embeddings": False,
        "rope": None, "layer_windows": (None,) * 32, "layer_rope": (True,) * 32, "own": True,
    }  # fmt: skip
    return ModelConfig(**(shape | fields))  # type: ignore[arg-type]


def tokens(**changed: Any) -> int:
    given: dict[str, Any] = {
        "bytes_per_token": 131072, "free": 64 * GIB, "total": 80 * GIB, "share": 0.9, "rows": 8192,
        "sequences": 256, "graphs": True, "window": 8192,
    }  # fmt: skip
    return device_pool_tokens(config(), torch.bfloat16, **(given | changed))


def test_what_is_left_is_the_pool() -> None:
    base = tokens()
    # 72 GiB may be filled, 16 are; a step, graphs and the reserve take a few more.
    assert 48 * 8192 < base < 56 * 8192
    assert tokens(bytes_per_token=65536) in (2 * base, 2 * base + 1)
    assert tokens(free=63 * GIB) == base - 8192
    assert tokens(share=0.8) == base - 8 * 8192
    assert tokens(graphs=False) == base + 8192
    assert tokens(rows=16384) < base
    # Eight pieces of each new token's attention, 4096 numbers of four bytes.
    assert base - tokens(pieces=8) == (8 * 8192 - 64 * 256) * 4096 * 4 // 131072
    assert tokens(total=80 * GIB, free=64 * GIB, share=1.0) * 131072 < 64 * GIB


def test_a_step_is_not_underrated() -> None:
    """What the fused forward of an 8B holds at once for 8192 rows: the residual, its norm, q k v, the
    gate and up halves and their product, in bfloat16."""
    rows = 8192 * 2 * (4096 * 2 + 6144 + 3 * 14336)
    logits = 1024 * 128256 * (2 + 4)
    assert step_bytes(config(), torch.bfloat16, 8192, 256) > rows + logits


def test_a_pool_below_one_window_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"less than one context window of 8192") as caught:
        tokens(free=12 * GIB)
    assert caught.value.param == "gpu_memory"
