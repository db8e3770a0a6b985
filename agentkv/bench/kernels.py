"""What the Triton kernels cost on GPUs that are not there: `aot` compiles them and reads the result."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from agentkv.bench.check import Report

if TYPE_CHECKING:
    from agentkv.kernels.aot import Row

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
ATTENTION = ("extend", "decode", "cascade")
OTHERS = (
    "merge_lse", "kv_store", "kv_store fp8", "kv_copy", "rms_norm", "rope", "qk_norm_rope",
    "silu_mul", "sample",
)  # fmt: skip
DTYPES = {
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "fp8": (torch.bfloat16, torch.float8_e4m3fn),
    "float32": (torch.float32, torch.float32),
}
"""Dtypes of queries and pool."""


@dataclass(frozen=True, slots=True)
class Case:
    """One launch to compile. All but `kernel` is for attention only. `tma`: the tuning table's tiles
    with K/V in boxes, which the shipped table has switched on nowhere."""

    kernel: str
    head_dim: int = 128
    dtype: str = "bfloat16"
    page: int = 16
    group: int = 4
    window: int | None = None
    softcap: float | None = None
    tma: bool = False

    def __str__(self) -> str:
        if self.kernel not in ATTENTION:
            return self.kernel
        rule = f" w{self.window}" if self.window else ""
        rule += " cap" if self.softcap else ""
        rule += " tma" if self.tma else ""
        return f"{self.kernel} d{self.head_dim} {self.dtype} p{self.page} g{self.group}{rule}"


def cases(every: bool = False) -> list[Case]:
    """Each kernel in its most common forms; with `every`, each row of the tuning table in many.

    Those with `tma` are for targets that have such a unit."""
    found = [
        Case("extend"),
        Case("extend", dtype="fp8"),
        Case("extend", head_dim=64, page=1, group=3),
        Case("extend", head_dim=80, window=512),
        Case("extend", head_dim=256, softcap=50.0),
        Case("decode"),
        Case("decode", dtype="fp8"),
        Case("decode", head_dim=64, page=1, group=3),
        Case("decode", tma=True),
        Case("extend", page=64, tma=True),
        Case("cascade"),
        *map(Case, OTHERS),
    ]
    if every:
        grid = itertools.product(ATTENTION, (64, 80, 96, 128, 256), DTYPES, ((16, 4), (1, 3)))
        found += [Case(k, d, t, p, g) for k, d, t, (p, g) in grid]
        rules: list[dict[str, Any]] = [{"window": 512}, {"softcap": 50.0}]
        found += [
            Case(k, d, t, **rule)
            for k, d, t, rule in itertools.product(ATTENTION, (64, 128, 256), DTYPES, rules)
        ]
        boxes = itertools.product(
            (("decode", 16), ("decode", 64), ("extend", 64)), (64, 80, 96, 128, 256), ("bfloat16", "fp8")
        )  # fmt: skip
        found += [Case(k, d, t, p, tma=True) for (k, p), d, t in boxes]
        found += [
            Case("decode", dtype=t, tma=True, **rule) for t in ("bfloat16", "fp8") for rule in rules
        ]
    return list(dict.fromkeys(found))


def compiled(
    targets: Sequence[str] = TARGETS, *, every: bool = False, processes: int | None = None
) -> list[tuple[Case, Row]]:
    """Each case compiled for each target, in processes of their own.

    Raises RuntimeError if the compiler brought one of them down.
    """
    from agentkv.kernels.boxes import has_boxes

    work = [
        (target, case)
        for target, case in itertools.product(targets, cases(every))
        if has_boxes(target) or not case.tma
    ]
    context = multiprocessing.get_context("spawn")
    count = min(processes or os.cpu_count() or 1, len(work))
    rows: list[Row] = []
    # A compiler keeps tens of megabytes of each kernel, so processes are replaced now and then.
    for start in range(0, len(work), 40 * count):
        with ProcessPoolExecutor(count, mp_context=context, initializer=_compiles) as pool:
            try:
                rows += pool.map(_compile, work[start : start + 40 * count])
            except BrokenProcessPool as error:
                raise RuntimeError(
                    "the compiler brought its process down; try fewer targets at once"
                ) from error
    return [(case, row) for (_, case), row in zip(work, rows, strict=True)]


def aot(
    targets: Sequence[str] = TARGETS, *, every: bool = False, processes: int | None = None
) -> Report:
    """The table of all kernels, and whether each keeps to its limits."""
    return table(compiled(targets, every=every, processes=processes))


def table(rows: Sequence[tuple[Case, Row]]) -> Report:
    """What `compiled` found, with a check for each limit that a kernel is over."""
    report = Report("kernels", "kernels, compiled ahead of time")
    for case, row in rows:
        report.rows.append(
            {
                "kernel": str(case),
                "target": row.target,
                "registers": row.registers,
                "spills": row.spills,
                "shared": row.shared,
                "warps": row.warps,
                "programs": row.programs,
                "matrix": f"{row.matrix} {row.matrix_kind}".strip() if row.matrix else "-",
                "wide_loads": row.wide_loads,
            }
        )
        for fault in faults(case, row):
            report.check(f"{case}, {row.target}", fault, "none", ok=False)
    if report.ok:
        report.check("kernels over their limits", "0", "0", ok=True)
    report.notes.append("Compiled only: this says nothing of speed.")
    return report


def faults(case: Case, row: Row) -> Iterator[str]:
    """Limits that a compiled kernel is over."""
    from agentkv.kernels import aot as harness

    facts = harness.TARGETS[row.target]
    if row.spills:
        yield f"{row.spills} bytes of registers spilled"
    if row.shared > facts.shared:
        yield f"{row.shared} bytes of shared memory, {facts.shared} are there"
    if row.programs * row.warps < wanted_warps(case, row.target):
        yield f"{row.programs} programs of {row.warps} warps on a multiprocessor are too few"
    if case.kernel not in ATTENTION:
        return
    if not row.matrix and case.dtype != "float32":
        yield "no matrix instruction"
    if not row.wide_loads:
        yield "no load of 16 bytes"
    if case.tma and not any(op.startswith("UTMALDG") for op in row.opcodes):
        yield "no copy by the TMA unit"


def wanted_warps(case: Case, target: str) -> int:
    """Warps that a multiprocessor should hold: they hide the latency of memory."""
    if target.startswith("gfx"):
        return 4
    return 8 if case.kernel in ATTENTION else 16


def _compiles() -> None:
    # Before Triton is imported: a process that interprets kernels cannot compile them.
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    torch.set_num_threads(1)


def _compile(work: tuple[str, Case]) -> Row:
    from agentkv.kernels.aot import compile_only

    target, case = work
    with compile_only(target) as rows:
        if case.kernel in ATTENTION:
            _attention(case)
        else:
            _other(case.kernel)
    return rows[0]


def _attention(case: Case) -> None:
    from agentkv.kernels.cascade_attention import cascade_attention
    from agentkv.kernels.decode_attention import decode_attention
    from agentkv.kernels.device import arch_of
    from agentkv.kernels.extend_attention import extend_attention
    from agentkv.kernels.paged import Paged
    from agentkv.kernels.tuning import pick

    q_dtype, kv_dtype = DTYPES[case.dtype]
    kv_heads = 4
    kv = torch.zeros((2, 64 * case.page, kv_heads, case.head_dim), dtype=torch.uint8).to(kv_dtype)
    scales = torch.ones(2, kv_heads) if case.dtype == "fp8" else None
    q = torch.zeros((8, kv_heads * case.group, case.head_dim), dtype=q_dtype)
    indptr = torch.arange(9, dtype=torch.int32)
    last = torch.ones(8, dtype=torch.int32)
    table = torch.zeros(64, dtype=torch.int32)
    paged = Paged(indptr, indptr * 8, table, last, case.page)
    rule: dict[str, Any] = {
        "scale": 0.1, "window": case.window, "softcap": case.softcap, "scales": scales,
    }  # fmt: skip
    if case.tma:
        tiles = pick(case.kernel, arch_of(q.device), case.head_dim, kv_dtype, q_dtype)
        rule["config"] = replace(tiles, tma=True)
    if case.kernel == "extend":
        extend_attention(q, kv, paged, **rule)
    elif case.kernel == "decode":
        decode_attention(q, kv, paged, max_kv_len=8192, **rule)
    else:
        shared = table[:32]
        size = 32 * case.page
        cascade_attention(q, kv, shared, paged, shared_len=size, max_kv_len=8192, **rule)


def _other(name: str) -> None:
    from agentkv.kernels.kv_copy import kv_gather
    from agentkv.kernels.kv_store import kv_store
    from agentkv.kernels.merge_lse import merge_lse
    from agentkv.kernels.qk_norm_rope import qk_norm_rope
    from agentkv.kernels.rms_norm import rms_norm
    from agentkv.kernels.rope import rope
    from agentkv.kernels.sampling import sample
    from agentkv.kernels.silu_mul import silu_mul

    half = torch.bfloat16
    x, wide = torch.zeros((8, 4096), dtype=half), torch.zeros((8, 24576), dtype=half)
    heads = torch.zeros((8, 48, 128), dtype=half)
    table, at = torch.zeros(64, 64, 2), torch.zeros(8, dtype=torch.int64)
    pages = torch.zeros(8, dtype=torch.int32)
    pool = torch.zeros((2, 128, 8, 128), dtype=half)
    codes = pool.to(torch.float8_e4m3fn)
    one = torch.ones(8)
    if name == "merge_lse":
        merge_lse(torch.zeros(16, 8, 32, 128), torch.zeros(16, 8, 32), pages, dtype=half)
    elif name == "kv_store":
        kv_store(heads[:, 32:40], heads[:, 40:], pool, at)
    elif name == "kv_store fp8":
        kv_store(heads[:, 32:40], heads[:, 40:], codes, at, torch.ones(2, 8))
    elif name == "kv_copy":
        kv_gather(pool, pages, torch.zeros((8, 2, 16, 8, 128), dtype=half), 16)
    elif name == "rms_norm":
        rms_norm(x, x[0], 1e-6, residual=x.clone())
    elif name == "rope":
        rope(heads[:, :40], table, at)
    elif name == "qk_norm_rope":
        qk_norm_rope(heads[:, :40], heads[0, :40], table, at, 1e-6)
    elif name == "silu_mul":
        silu_mul(wide[:, :12288], wide[:, 12288:])
    else:
        sample(torch.zeros(8, 151936), one, pages, one, one, one)
