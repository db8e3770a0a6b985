"""Every kernel compiled for GPUs that are not here: registers, shared memory, matrix instructions."""

from __future__ import annotations

import dataclasses
import sys

import pytest
import torch

from agentkv.bench.kernels import ATTENTION, TARGETS, Case, compiled, faults, table
from agentkv.kernels import aot, merge_lse
from agentkv.kernels import decode_attention as decode_module
from agentkv.kernels.aot import Row, compile_only
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.paged import Paged

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is there for Linux only")


@pytest.fixture(scope="module")
def rows() -> list[tuple[Case, Row]]:
    return compiled()


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_keep_to_their_limits(rows: list[tuple[Case, Row]], target: str) -> None:
    mine = [(case, row) for case, row in rows if row.target == target]
    assert {case.kernel for case, _ in mine} > set(ATTENTION)
    assert not [f"{case}: {fault}" for case, row in mine for fault in faults(case, row)]


def test_the_table_says_it_all(rows: list[tuple[Case, Row]]) -> None:
    report = table(rows)
    assert report.ok and len(report.rows) == len(rows)
    spilling = dataclasses.replace(rows[0][1], spills=8)
    assert not table([(rows[0][0], spilling)]).ok


def test_prefill_uses_the_matrix_units_of_its_architecture(rows: list[tuple[Case, Row]]) -> None:
    kinds = {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCHMMA", "gfx942": "v_mfma"}
    for case, row in rows:
        if case.kernel == "extend" and case.head_dim <= 128:
            assert row.matrix_kind.startswith(kinds[row.target]), (str(case), row)


def test_loads_overlap_with_arithmetic(rows: list[tuple[Case, Row]]) -> None:
    for case, row in rows:
        if case.kernel in ATTENTION and row.target.startswith("sm_"):
            copy = "UTMALDG" if case.tma else "LDGSTS"
            assert any(op.startswith(copy) for op in row.opcodes), (str(case), row)


def test_boxes_are_compiled_for_those_that_have_them(rows: list[tuple[Case, Row]]) -> None:
    boxed = {(case.kernel, row.target) for case, row in rows if case.tma}
    assert boxed == {(k, t) for k in ("decode", "extend") for t in ("sm_90", "sm_100")}


def test_a_batch_of_another_size_compiles_nothing_new() -> None:
    kv = torch.zeros((2, 64, 3, 64), dtype=torch.bfloat16)

    def step(seqs: int, longest: int) -> None:
        q = torch.zeros((seqs, 9, 64), dtype=torch.bfloat16)
        ends = torch.arange(seqs + 1, dtype=torch.int32)
        paged = Paged(ends, ends, torch.zeros(seqs, dtype=torch.int32))
        decode_attention(q, kv, paged, scale=0.1, max_kv_len=longest)

    def kernels() -> int:
        every = (merge_lse._merge, decode_module._decode)
        return sum(len(c[0]) for kernel in every for c in kernel.device_caches.values())

    with compile_only("sm_90"):
        step(3, 5000)
        known = kernels()
        for seqs, longest in ((1, 300), (2, 8192), (16, 16384), (17, 5000)):
            step(seqs, longest)
        assert kernels() == known


def test_limits_are_noticed() -> None:
    bad = Row(
        kernel="extend", target="sm_90", registers=255, spills=8, shared=1 << 20, warps=4, matrix=0,
        matrix_kind="", wide_loads=0, programs=0,
    )  # fmt: skip
    assert len(list(faults(Case("extend"), bad))) == 5
    assert len(list(faults(Case("extend", tma=True), bad))) == 6


@pytest.mark.slow
@pytest.mark.parametrize("target", aot.TARGETS)  # sm_86 takes the defaults
def test_every_row_of_the_table(target: str) -> None:
    every = compiled((target,), every=True)
    assert not [f"{case}: {fault}" for case, row in every for fault in faults(case, row)]
