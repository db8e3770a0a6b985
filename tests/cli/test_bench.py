"""`agentkv bench device` and `bench kernels`: exit status, JSON, usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentkv.bench import kernels

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@NO_GPU
def test_a_machine_without_a_gpu(agentkv: Callable[..., Any]) -> None:
    ran = agentkv("bench", "device")
    assert ran.code == 3 and ran.out == ""
    assert ran.err.count("\n") == 1 and "agentkv doctor" in ran.err


def test_a_dry_run(agentkv: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    ran = agentkv("bench", "device", "--dry-run", "--part", "roofs", "--out", str(out), "--json")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert [b["bench"] for b in said["benches"]] == ["roofs", "device"]
    assert said["benches"][0]["rows"] == json.loads(out.read_text())["sections"]["roofs"]["rows"]
    ran = agentkv("bench", "device", "--dry-run", "--out", str(out))
    assert ran.code == 2 and "--resume" in ran.err


@NO_GPU
def test_kernels_are_compiled(agentkv: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(kernels, "cases", lambda every=False: [kernels.Case("rms_norm")])
    ran = agentkv("bench", "kernels", "--target", "sm_90", "--json")
    assert ran.code == 0, ran.out + ran.err
    (row,) = json.loads(ran.out)["rows"]
    assert (row["kernel"], row["target"], row["spills"]) == ("rms_norm", "sm_90", 0)
    assert row["registers"] > 0


def test_a_target_that_there_is_not(agentkv: Callable[..., Any]) -> None:
    pytest.importorskip("triton")
    ran = agentkv("bench", "kernels", "--target", "sm_12")
    assert ran.code == 2 and "sm_90" in ran.err
