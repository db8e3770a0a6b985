"""The kernels' smoke test, run by `agentkv doctor` in a process of its own.

    python -P -m agentkv.doctor.smoke cuda|cpu [KERNEL ...]

prints JSON: [{"kernel", "error", "ok", "fault"}].

On CUDA the kernels are compiled and run. On a CPU with TRITON_INTERPRET=1 Triton's interpreter runs
them. On a CPU without, their references run, and are held against torch's own attention.
A process of its own, since the interpreter is chosen when Triton is imported, and since a compiler
that fails may take its process with it.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from agentkv.bench import device_exact as exact
from agentkv.bench.device_batch import Batch, Heads, make
from agentkv.kernels.cascade_attention import cascade_attention
from agentkv.kernels.decode_attention import decode_attention
from agentkv.kernels.device import INTERPRETED
from agentkv.kernels.extend_attention import extend_attention
from agentkv.kernels.kv_store import kv_store, kv_store_reference
from agentkv.kernels.rms_norm import rms_norm

SMALL = Heads(heads=4, kv_heads=2, dim=64)
LENS = (1, 16, 45)
PAGE = 16
SHARED = 32
"""Tokens of the cascade's common prefix."""


def cases(device: str) -> dict[str, Callable[[], exact.Agreement]]:
    """What is run, by name."""
    wide = torch.bfloat16 if device == "cuda" else torch.float32
    found: dict[str, Callable[[], exact.Agreement]] = {
        "decode": lambda: decode(batch(device, wide, wide)),
        "extend": lambda: extend(batch(device, wide, wide, new=(1, 9, 20))),
        "cascade": lambda: cascade(device, wide),
        "kv_store": lambda: store(device, wide, wide),
        "rms_norm": lambda: norm(device, wide),
    }
    if device == "cuda":
        fp8 = torch.float8_e4m3fn
        found["decode fp8"] = lambda: decode(batch(device, wide, fp8))
        found["extend fp8"] = lambda: extend(batch(device, wide, fp8, new=(1, 9, 20)))
        found["kv_store fp8"] = lambda: store(device, wide, fp8)
    return found


def batch(device: str, q: torch.dtype, kv: torch.dtype, new: tuple[int, ...] = (1, 1, 1)) -> Batch:
    return make(LENS, new, page=PAGE, kv_dtype=kv, q_dtype=q, device=device, heads=SMALL)


def decode(b: Batch) -> exact.Agreement:
    return compare(b, decode_attention(b.q, b.kv, b.paged, max_kv_len=max(LENS), **b.rule())[0])


def extend(b: Batch) -> exact.Agreement:
    return compare(b, extend_attention(b.q, b.kv, b.paged, **b.rule())[0])


def compare(b: Batch, out: torch.Tensor) -> exact.Agreement:
    """Against the reference; or, where the answer is the reference's, against torch."""
    if b.q.is_cuda or INTERPRETED:
        return exact.attention(b, out)
    return exact.agreement(out, by_torch(b))


def by_torch(b: Batch) -> torch.Tensor:
    """`scaled_dot_product_attention`, one sequence at a time, on copies of its K and V."""
    parts = []
    for i in range(len(b.lens)):
        one = b.part([i])
        n, length = int(b.new[i]), int(b.lens[i])
        k, v = (
            side.repeat_interleave(b.heads.heads // b.heads.kv_heads, 1).transpose(0, 1)
            for side in b.kv[:, torch.from_numpy(one.slots()).long()]
        )
        mask = torch.ones(n, length, dtype=torch.bool).tril(length - n)
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                one.q.transpose(0, 1), k, v, attn_mask=mask, scale=b.heads.scale
            ).transpose(0, 1)
        )
    return torch.cat(parts)


def cascade(device: str, dtype: torch.dtype) -> exact.Agreement:
    """Sequences that begin with the same pages, read apart and together."""
    shared = SHARED // PAGE
    lens = [SHARED + n for n in LENS]
    b = make(lens, (1, 1, 1), page=PAGE, kv_dtype=dtype, q_dtype=dtype, device=device, heads=SMALL)
    own = b.paged
    _, indptr, pages, _ = b.tables
    for at in indptr[1:-1]:
        pages[at : at + shared] = pages[:shared]
    own.kv_indices.copy_(torch.from_numpy(pages))
    behind = make(
        LENS, (1, 1, 1), page=PAGE, kv_dtype=dtype, q_dtype=dtype, device=device, heads=SMALL
    ).paged
    keep = torch.cat(
        [own.kv_indices[int(a) + shared : int(z)] for a, z in itertools.pairwise(indptr)]
    )
    behind.kv_indices.copy_(keep)
    out, _ = cascade_attention(
        b.q, b.kv, own.kv_indices[:shared].clone(), behind, shared_len=SHARED, max_kv_len=max(LENS),
        **b.rule(),
    )  # fmt: skip
    return compare(b, out)


def store(device: str, dtype: torch.dtype, kv_dtype: torch.dtype) -> exact.Agreement:
    """New K and V in their slots, one of them skipped, one too large."""
    maker = torch.Generator(device).manual_seed(0)
    k, v = (torch.randn(4, 2, 64, generator=maker, device=device).to(dtype) for _ in range(2))
    k[0, 0, 0] = 1e4
    slots = torch.tensor([5, -1, 0, 7], device=device, dtype=torch.int32)
    scales = torch.full((2, 2), 0.25, device=device) if kv_dtype == torch.float8_e4m3fn else None
    pools = [torch.zeros((2, 8, 2, 64), device=device).to(kv_dtype) for _ in range(2)]
    kv_store(k, v, pools[0], slots, scales)
    kv_store_reference(k, v, pools[1], slots, scales)
    got, expected = (p.view(torch.uint8).float() if scales is not None else p for p in pools)
    return exact.agreement(got, expected, limit=0.0)


def norm(device: str, dtype: torch.dtype) -> exact.Agreement:
    """Against torch's own."""
    maker = torch.Generator(device).manual_seed(0)
    x, weight = (torch.randn(s, generator=maker, device=device).to(dtype) for s in ((3, 96), (96,)))
    expected = torch.nn.functional.rms_norm(x.float(), (96,), weight.float(), 1e-5)
    return exact.agreement(rms_norm(x, weight, 1e-5), expected)


def main(device: str, *names: str) -> None:
    torch.empty(1, device=device)  # a device that is not there at all is no kernel's fault
    rows: list[dict[str, Any]] = []
    for name, case in cases(device).items():
        if names and name not in names:
            continue
        try:
            found = case()
        except Exception as error:  # whatever a compiler or a driver raises is the finding
            fault = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            rows.append({"kernel": name, "error": None, "ok": False, "fault": fault})
        else:
            rows.append({"kernel": name, "error": found.error, "ok": found.ok, "fault": None})
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
