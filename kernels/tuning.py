"""Which tiles an attention kernel runs with: read from a table, never measured while serving.

`tuning.toml` beside this file has a row for each kernel, architecture, head size and bits of K/V. An
architecture without rows of its own takes those of the nearest older one of its family, and in the
end the defaults, which are right on every device and fast on none. `AGENTKV_TUNING` names a file of
the same form whose rows go first; `tune_kernels` writes one.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

KERNELS = ("extend", "decode", "cascade")
HEAD_DIMS = (64, 128, 256)
"""Sizes that rows are made for; others take the row of the next larger one."""
BITS = (8, 16, 32)


@dataclass(frozen=True, slots=True)
class Config:
    """Rows and keys of a tile, warps of a program, stages of the loop over the keys; where keys are
    split, the least keys of a piece and the most pieces.

    `tma`: K and V are copied in boxes, a page each (see boxes.py). It needs sm_90 or newer, and has an
    effect on pages of 16 and more; K and V of smaller pages are read by pointers with these tiles.
    """

    block_m: int
    block_n: int
    warps: int
    stages: int
    min_split: int = 256
    max_splits: int = 64
    tma: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.tma, bool):
            raise TypeError(f"tma, the 7th value of a row, is true or false, and not {self.tma!r}")


@dataclass(frozen=True, slots=True)
class Key:
    """What a row is for. `bits`: of one number of K/V."""

    kernel: str
    arch: str
    head_dim: int
    bits: int


def pick(
    kernel: str, arch: str, head_dim: int, kv_dtype: torch.dtype, q_dtype: torch.dtype
) -> Config:
    """The configuration for these. Queries of float32 are multiplied as such, whatever K/V are."""
    bits = 32 if q_dtype == torch.float32 else 8 * kv_dtype.itemsize
    return _pick(kernel, arch, head_dim, bits, os.environ.get("AGENTKV_TUNING"))


@functools.cache
def _pick(kernel: str, arch: str, head_dim: int, bits: int, overlay: str | None) -> Config:
    size = next((d for d in HEAD_DIMS if d >= head_dim), HEAD_DIMS[-1])
    rows = table(overlay)
    for name in (*_family(arch, {key.arch for key in rows}), "default"):
        found = rows.get(Key(kernel, name, size, bits))
        if found is not None:
            return found
    raise LookupError(f"no configuration for {kernel} with head size {head_dim}, {bits} bits")


def _family(arch: str, known: Iterable[str]) -> list[str]:
    """`arch` and the older ones of its family, newest first."""
    if not arch.startswith("sm_"):
        return [arch]
    number = int(arch[3:])
    if number in range(86, 90) or number >= 120:
        return [arch]  # a consumer's card has less shared memory than its predecessors' rows take
    older = {int(a[3:]) for a in known if a.startswith("sm_")}
    return [arch, *(f"sm_{n}" for n in sorted(older, reverse=True) if n < number)]


@functools.cache
def table(overlay: str | None = None) -> dict[Key, Config]:
    """All rows; those of the file `overlay` instead of the shipped ones where both have one."""
    rows = read(Path(__file__).with_name("tuning.toml"))
    if overlay:
        rows |= read(Path(overlay))
    return rows


def read(path: Path) -> dict[Key, Config]:
    """Rows of a file: `[kernel.arch.head_dim] bits = [block_m, block_n, warps, stages, ...]`, in the
    order of `Config`; what is left out at the end is its default."""
    try:
        raw = tomllib.loads(path.read_text())
        return {
            Key(kernel, arch, int(dim), int(bits)): Config(*values)
            for kernel, archs in raw.items()
            for arch, dims in archs.items()
            for dim, rows in dims.items()
            for bits, values in rows.items()
        }
    except (OSError, tomllib.TOMLDecodeError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is no tuning table: {error}") from error


def write(path: Path, rows: dict[Key, Config]) -> None:
    """What `read` reads."""
    lines: list[str] = []
    group: tuple[str, str, int] | None = None
    order = sorted(rows, key=lambda k: (KERNELS.index(k.kernel), k.arch, k.head_dim, k.bits))
    for key in order:
        if (key.kernel, key.arch, key.head_dim) != group:
            group = (key.kernel, key.arch, key.head_dim)
            lines.append(f"\n[{key.kernel}.{key.arch}.{key.head_dim}]")
        *sizes, tma = asdict(rows[key]).values()
        values = [*map(str, sizes), *(["true"] if tma else [])]
        lines.append(f"{key.bits} = [{', '.join(values)}]")
    path.write_text("\n".join((_HEAD, *lines)) + "\n")


_HEAD = """\
# [kernel.architecture.head_dim]
# bits of one number of K/V = [block_m, block_n, warps, stages, min_split, max_splits]
# A 7th value, true, has K and V copied in boxes of a page by the TMA unit (sm_90 and newer)."""
