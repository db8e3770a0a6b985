"""The tuning table: what it has for whom, and how a device's own rows come first."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentkv.kernels import tuning
from agentkv.kernels.device import compiling_for
from agentkv.kernels.tune import Unfit, tune_kernels
from agentkv.kernels.tuning import BITS, HEAD_DIMS, KERNELS, Config, Key, pick, table

HALF = torch.bfloat16


@pytest.mark.parametrize("arch", ["sm_90", "sm_86", "gfx1100", "interpreter"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_there_is_a_row_for_everything(kernel: str, arch: str) -> None:
    for dim in (16, 64, 80, 96, 128, 256):
        for q, kv in ((HALF, HALF), (HALF, torch.float8_e4m3fn), (torch.float32, torch.float32)):
            config = pick(kernel, arch, dim, kv, q)
            assert config.min_split % config.block_n == 0


def test_rows_are_complete() -> None:
    rows = table()
    for arch in {key.arch for key in rows}:
        for kernel in KERNELS:
            for dim in HEAD_DIMS:
                assert all(Key(kernel, arch, dim, bits) in rows for bits in BITS), (arch, kernel)


def test_a_newer_architecture_takes_the_rows_of_the_one_before() -> None:
    assert pick("extend", "sm_103", 128, HALF, HALF) == pick("extend", "sm_100", 128, HALF, HALF)
    assert pick("extend", "sm_100", 128, HALF, HALF) == table()[Key("extend", "sm_100", 128, 16)]
    # Consumers' cards have too little shared memory for that.
    for small in ("sm_86", "sm_89", "sm_120", "gfx1100"):
        assert pick("extend", small, 128, HALF, HALF) == table()[Key("extend", "default", 128, 16)]


def test_a_measured_table_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Config(16, 64, 8, 2, 512, 64)

    def measure(key: Key, config: Config) -> float:
        if config.block_n == 128:
            raise Unfit("no room")
        return 1.0 if config == wanted else 2.0

    path = tmp_path / "mine.toml"
    found = tune_kernels(
        path, device="cpu", kernels=("decode",), head_dims=(128,), bits=(16,), measure=measure
    )
    key = Key("decode", "interpreter", 128, 16)
    assert found == {key: wanted} == tuning.read(path)
    monkeypatch.setenv("AGENTKV_TUNING", str(path))
    assert pick("decode", "interpreter", 128, HALF, HALF) == wanted
    assert pick("decode", "interpreter", 64, HALF, HALF) != wanted


@pytest.mark.parametrize(("arch", "width"), [("sm_90", 16), ("sm_80", 16), ("sm_90", 32)])
def test_boxes_are_tried_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str, width: int
) -> None:
    path = tmp_path / "mine.toml"
    with compiling_for(arch):
        found = tune_kernels(
            path, device="cpu", kernels=("extend", "decode"), head_dims=(128,), bits=(width,),
            measure=lambda key, config: 1.0 if config.tma else 2.0,
        )  # fmt: skip
    boxes = (arch, width) == ("sm_90", 16)
    assert {config.tma for config in found.values()} == {boxes}
    assert (", true]" in path.read_text()) == boxes
    assert tuning.read(path) == found
    monkeypatch.setenv("AGENTKV_TUNING", str(path))
    q_dtype = torch.float32 if width == 32 else HALF
    assert pick("decode", arch, 128, HALF, q_dtype).tma == boxes


def test_the_shipped_table_has_no_boxes() -> None:
    assert not any(config.tma for config in table().values())


@pytest.mark.parametrize("row", ["[1]", "[16, 32, 4, 1, 256, 64, 1]"])
def test_what_is_no_table_is_said_to_be_none(tmp_path: Path, row: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f"[extend.sm_90.128]\n16 = {row}\n")
    with pytest.raises(ValueError, match="no tuning table"):
        tuning.read(path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_tuning_needs_a_device(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="GPU"):
        tune_kernels(tmp_path / "mine.toml")
