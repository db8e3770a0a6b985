"""`bench device`: the script itself, at sizes for a CPU. What it measures needs a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.bench import (
    device,
    device_engine,
    device_exact,
    device_goals,
    device_kernels,
    device_loop,
    device_run,
)
from agentkv.bench.device_batch import Batch, Heads, make
from agentkv.bench.device_loop import Loop, Setting
from agentkv.bench.device_model import prefill_flops, random_llama, step_bytes
from agentkv.bench.device_run import Section
from agentkv.bench.device_sizes import DRY, EIGHT_B, FULL
from agentkv.bench.device_time import Clock
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.paged_attention import attention_reference
from tests.engine.run.fake_device import FakeDevice

HEADS = Heads(heads=4, kv_heads=2, dim=16)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller than a dry run: what is looked at here is what comes out."""
    sizes = replace(DRY, decode_batches=(2,), repeats=1, engine_batches=(2,), prompt=64)
    monkeypatch.setattr(device, "DRY", sizes)


def sections(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text())
    assert (value["schema"], value["bench"], value["dry_run"]) == (1, "device", True)
    found: dict[str, Any] = value["sections"]
    return found


def failed(reports: list[Any]) -> list[str]:
    return [c.name for r in reports for c in r.checks if not c.ok]


def test_all_of_it_runs(tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    reports = device.run(dry=True, out=out)
    assert failed(reports) == []
    found = sections(out)
    assert list(found) == list(device.SECTIONS)
    assert all(s["complete"] and s["rows"] and not s["failures"] for s in found.values())
    settings = [row["setting"] for row in found["engine/decode"]["rows"]]
    assert settings == ["default", "fp8", "no graphs", "no overlap", "deterministic"]
    on, off = found["engine/shared"]["rows"]
    assert on["cascade_steps"] > 0 and off["cascade_steps"] == 0
    for row in found["engine/ttft"]["rows"]:
        assert row["cached"] == 48  # whole pages of 63 tokens


def test_a_run_goes_on_where_it_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "device.json"
    device.run(dry=True, out=out, parts=["roofs"])
    roofs = sections(out)["roofs"]
    assert list(sections(out)) == ["roofs"]

    # Time is up in the middle of the second section.
    began: list[str] = []
    case = device_run.Run.case

    def late(run: Any, section: Section, what: str) -> Any:
        began.append(what)
        if len(began) == 3:
            run.deadline = 0.0
        return case(run, section, what)

    monkeypatch.setattr(device_run.Run, "case", late)
    reports = device.run(dry=True, resume=out, seconds=1000)
    monkeypatch.undo()
    found = sections(out)
    assert list(found) == ["roofs", "kernels/decode"] and found["roofs"] == roofs
    assert not found["kernels/decode"]["complete"] and len(found["kernels/decode"]["rows"]) == 2
    assert failed(reports) == ["measured"]

    assert failed(device.run(dry=True, resume=out, parts=["kernels"])) == []
    found = sections(out)
    assert found["roofs"] == roofs and found["kernels/decode"]["complete"]
    assert list(found) == [n for n in device.SECTIONS if not n.startswith("engine")]


def test_files_that_are_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "device.json"
    device.run(dry=True, out=out, parts=["roofs"])
    with pytest.raises(device.BadFile, match="--resume"):
        device.run(dry=True, out=out)
    value = json.loads(out.read_text())
    for change, said in (
        ({"dry_run": False}, "real run"),
        ({"machine": value["machine"] | {"torch": "1.0"}}, "torch 1.0"),
        ({"bench": "cpu"}, "no file of bench device"),
    ):
        out.write_text(json.dumps(value | change))
        with pytest.raises(device.BadFile, match=said):
            device.run(dry=True, resume=out)
    out.write_text("{")
    with pytest.raises(device.BadFile):
        device.run(dry=True, resume=out)


def test_a_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(q: Any, kv: Any, *args: Any, **named: Any) -> Any:
        out, lse = decode_attention(q, kv, *args, **named)
        return out * 1.01, lse

    monkeypatch.setattr(device_kernels, "decode_attention", off)
    reports = device.run(dry=True, parts=["kernels"])
    assert failed(reports) == ["answers that differ from the references"]
    assert any(note.startswith("kernels/decode: kv float32, page 16") for note in reports[-1].notes)


def test_a_kernel_that_fails_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses(q: Any, kv: torch.Tensor, *args: Any, **named: Any) -> Any:
        if kv.dtype == torch.float8_e4m3fn:
            raise RuntimeError("out of resource: shared memory")
        return decode_attention(q, kv, *args, **named)

    monkeypatch.setattr(device_kernels, "decode_attention", refuses)
    out = tmp_path / "device.json"
    reports = device.run(dry=True, parts=["kernels"], out=out)
    lost = failed(reports)
    assert len(lost) == 2 and all("fp8" in name and "shared memory" in name for name in lost)
    assert [len(r.rows) for r in reports if r.bench == "kernels/decode"] == [2]
    assert next(r for r in reports if r.bench == "kernels/cascade").rows
    small = sections(out)["kernels/small"]
    # What failed is tried again, what did not is kept.
    monkeypatch.setattr(device_kernels, "decode_attention", decode_attention)
    assert failed(device.run(dry=True, parts=["kernels"], resume=out)) == []
    assert len(sections(out)["kernels/decode"]["rows"]) == 4
    assert sections(out)["kernels/small"] == small


# -- goals


def a_good_run() -> dict[str, Section]:
    """Rows as a GPU that meets every goal would give."""
    decode: list[dict[str, Any]] = [
        {"kv": kv, "page": page, "batch": b, "length": 4096, "ms": ms * b, "of_copy": 0.9}
        for kv, ms in (("bfloat16", 1.8), ("fp8", 1.0))
        for page in (16, 1)
        for b in (1, 64)
    ]
    extend: list[dict[str, Any]] = [
        {"kv": "bfloat16", "page": 16, "new": n, "tflop_per_s": 300.0 + n / 64, "vs_sdpa": 1.0}
        for n in (1024, 4096, 8192)
    ]
    cascade: list[dict[str, Any]] = [
        {"batch": b, "prefix": 8192, "of_bound": 0.7, "gain": g, "taken": t}
        for b, g, t in ((64, 9.0, "yes"), (4, 0.5, "no"))
    ]
    steps: list[dict[str, Any]] = [
        {"setting": "default", "by_graph": 1.0, "step_of_kernels": 1.1},
        {"setting": "no graphs", "by_graph": 0.0, "step_of_kernels": 3.0},
    ]
    ttft: list[dict[str, Any]] = [
        {"setting": "default", "ratio": 0.03},
        {"setting": "deterministic", "ratio": 0.2},
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "kernels/decode": decode, "kernels/extend": extend, "kernels/cascade": cascade,
        "engine/decode": steps, "engine/ttft": ttft,
    }  # fmt: skip
    return {name: Section(name, name, r) for name, r in rows.items()}


def missed(found: dict[str, Section]) -> list[str]:
    return [v.goal.name for v in device_goals.judge(found) if not v.met]


def test_a_run_that_meets_every_goal() -> None:
    verdicts = device_goals.judge(a_good_run())
    assert len(verdicts) == len(device_goals.GOALS) == 9
    assert missed(a_good_run()) == []


@pytest.mark.parametrize(
    ("section", "where", "change", "name"),
    [
        ("kernels/decode", {"page": 16, "batch": 64}, {"of_copy": 0.84}, "page 16: share of copy"),
        ("kernels/decode", {"page": 1, "batch": 64}, {"of_copy": 0.69}, "page 1: share of copy"),
        ("kernels/decode", {"kv": "fp8", "batch": 64}, {"ms": 80.0}, "FP8 against"),
        ("kernels/extend", {"new": 8192}, {"tflop_per_s": 349.0}, "4k new tokens"),
        ("kernels/extend", {"new": 4096}, {"vs_sdpa": 0.89}, "SDPA's"),
        ("kernels/cascade", {"batch": 64}, {"of_bound": 0.59}, "share of its bound"),
        ("kernels/cascade", {"taken": "yes"}, {"gain": 0.96}, "wherever it is taken"),
        ("engine/decode", {"by_graph": 1.0}, {"step_of_kernels": 1.26}, "by graph"),
        ("engine/ttft", {"setting": "default"}, {"ratio": 0.051}, "cached against cold"),
    ],
)
def test_a_goal_that_is_missed(
    section: str, where: dict[str, Any], change: dict[str, Any], name: str
) -> None:
    found = a_good_run()
    for row in found[section].rows:
        if all(row[k] == v for k, v in where.items()):
            row.update(change)
    (lost,) = missed(found)
    assert name in lost


def test_what_was_not_measured_is_not_met() -> None:
    found = a_good_run()
    found["engine/decode"].rows[0]["step_of_kernels"] = None
    del found["kernels/extend"]  # not part of the run: no verdict
    verdicts = device_goals.judge(found)
    assert [v.said for v in verdicts if not v.met] == ["not measured"]
    assert len(verdicts) == 7


# -- batches and models


@pytest.mark.parametrize("page", [1, 16])
def test_parts_of_a_batch_are_the_batch(page: int) -> None:
    batch = make(
        [40, 16, 33], [5, 16, 1], page=page, kv_dtype=torch.float32, q_dtype=torch.float32,
        device="cpu", heads=HEADS,
    )  # fmt: skip
    out, _ = attention_reference(batch.q, batch.kv, batch.paged, scale=HEADS.scale)

    def alone(one: Batch) -> torch.Tensor:
        return attention_reference(one.q, one.kv, one.paged, scale=HEADS.scale)[0]

    assert torch.equal(alone(batch.part([0, 2])), torch.cat((out[:5], out[21:])))
    assert torch.equal(alone(batch.end(1, 4)), out[17:21])
    first = alone(batch.end(1, 3, 13))  # keys that it may not see are not even in its table
    assert torch.allclose(first, out[5:8], atol=1e-6)
    k = batch.kv[0, torch.from_numpy(batch.slots()).long()]
    assert len(k) == 40 + 16 + 33 and len(set(batch.slots().tolist())) == len(k)


def test_operations_are_counted_as_seen() -> None:
    lens, new = [7, 5, 9], [3, 5, 1]
    batch = make(lens, new, page=1, kv_dtype=torch.float32, device="cpu", heads=HEADS)
    seen = sum(n - count + i + 1 for n, count in zip(lens, new, strict=True) for i in range(count))
    assert batch.flops == 4 * HEADS.heads * HEADS.dim * seen
    assert batch.kv_bytes == 2 * sum(lens) * HEADS.kv_heads * HEADS.dim * 4


def test_fp8_pools_are_full_of_numbers() -> None:
    batch = make([64], [1], page=16, kv_dtype=torch.float8_e4m3fn, device="cpu", heads=HEADS)
    assert batch.scales is not None
    wide = batch.kv.float() * batch.scales[:, None, :, None]
    assert torch.isfinite(wide).all() and 0.8 < wide.std() < 1.2


def test_nothing_agrees_with_nan() -> None:
    x = torch.ones(3)
    assert device_exact.agreement(x, x).ok
    assert not device_exact.agreement(x * torch.tensor([1, float("nan"), 1]), x).ok


def test_the_random_model_is_of_its_sizes() -> None:
    shape = DRY.model
    model = random_llama(shape, dtype=torch.float32, device=torch.device("cpu"))
    every = sum(
        lin.outputs * lin.inputs
        for layer in model.layers
        for lin in (layer.qkv, layer.out, layer.gate, layer.up, layer.down)
    )
    assert step_bytes(shape, torch.float32) == 4 * (every + shape.hidden * shape.vocab)
    whole = step_bytes(EIGHT_B, torch.bfloat16) / 2 + EIGHT_B.hidden * EIGHT_B.vocab
    assert 8.0e9 < whole < 8.1e9
    assert prefill_flops(EIGHT_B, 8192) / 8192 == pytest.approx(2 * 7.5e9, rel=0.2)


def test_every_sequence_of_the_full_sizes_decodes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduler and tree at the sizes of a GPU; nothing is computed."""

    class Nothing:
        def forward(self, batch: Any) -> torch.Tensor:
            return torch.zeros(len(batch.logit_rows), 2)

    monkeypatch.setattr(device_loop, "make_runner", lambda *a: (Nothing(), None))
    cpu = torch.device("cpu")
    shape = replace(DRY.model, layers=1, heads=Heads(2, 1, 4), context=FULL.model.context)
    sizes = replace(FULL, model=shape, dtype=torch.float32, engine_steps=4)
    run = device_run.Run(cpu, sizes, Clock(cpu, least=1, most=1))
    bench = device_engine.Bench(run)
    for name in ("decode", "shared"):
        section = Section(name, name)
        getattr(bench, name)(section)
        assert section.failures == []
    assert [r["batch"] for r in section.rows] == [64, 64]


def test_the_loop_on_a_device_goes_by_graphs() -> None:
    model = random_llama(DRY.model, dtype=torch.float32, device=torch.device("cpu"))
    answers = []
    for setting in (Setting(), Setting(graphs=False), Setting(deterministic=True)):
        loop = Loop(model, FakeDevice(), setting, tokens=512, running=4, step_tokens=64)
        (request,) = loop.decoding([np.arange(40, dtype=np.int32)], 20)
        loop.steps(8)
        answers.append(request.tokens[40:48].tolist())
        assert (loop.replays > 0) is (setting == Setting())
    assert answers[0] == answers[1] == answers[2]


def test_the_loop_reuses_and_repeats_itself() -> None:
    model = random_llama(DRY.model, dtype=torch.float32, device=torch.device("cpu"))
    loop = Loop(model, None, Setting(), tokens=512, running=4, step_tokens=64)
    prompt = np.arange(100, dtype=np.int32)
    _, cold = loop.first_token(prompt)
    _, warm = loop.first_token(prompt)
    assert (cold, warm) == (0, 96)
    requests = loop.decoding([prompt, prompt[::-1].copy()], 20)
    loop.steps(5)
    again = loop.decoding([prompt], 20)
    loop.steps(5)
    assert again[0].tokens[100:105].tolist() == requests[0].tokens[100:105].tolist()
    loop.stop([*requests, *again])
    assert loop.scheduler.idle
    loop.scheduler.check(deep=True)
