"""How long a restarted server takes to know what a large disk cache holds.

A directory whose index is as large as one of many gibibytes: every row is real, and the files have
their length but no content (sparse), so that it costs next to no disk. What is timed is what a
start does, reading the index, and what a request adds: finding its prefix there and putting that into
the tree. No file may be opened by either.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from agentkv.bench.check import Report, median, progress
from agentkv.engine.kv.backed import DISK, BackedTree
from agentkv.engine.kv.disk import DiskStore, open_index
from agentkv.engine.kv.store import Layout, tag_of
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray

SPACE: Namespace = (("model", "simulated"), ("salt", None))
TURNS = 30
"""Groups of one session: each turn is written behind the one before."""

LOOKUPS = 20

PAGE, TOKEN_BYTES, TURN_TOKENS, SYSTEM_TOKENS = 16, 23040, 48, 2048
"""A model of 135M parameters in bfloat16, and turns of about a mebibyte behind one system prompt."""


def run(gib: float, *, repeats: int = 3, seed: int = 0) -> Report:
    """Start on an index of `gib` GiB of K/V."""
    layout = Layout("simulated", "bfloat16", PAGE, 30, 3, 64, PAGE * TOKEN_BYTES)
    report = Report("restart index", f"A disk cache of {gib:g} GiB: what a start does")
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as name:
        folder = Path(name)
        progress(f"restart: an index of {gib:g} GiB")
        rng, wrong = np.random.default_rng(seed), 0
        groups, tokens = simulate(folder, layout, int(gib * 2**30), seed)
        opens: list[float] = []
        finds: list[float] = []
        for _ in range(repeats):
            store, seconds = _open(folder, layout)
            opens.append(seconds)
            last = [g for g in store.groups() if not g.children]
            for at in rng.integers(0, len(last), LOOKUPS).tolist():
                path = store.path(last[at])
                found, spent = _find(store, path)
                finds.append(spent)
                wrong += found != len(path)
            store.close()
        tracemalloc.start()
        with _opened_files() as names:
            store, _ = _open(folder, layout)
            _find(store, store.path(store.groups()[-1]))
        memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        store.close()
        index = sum(f.stat().st_size for f in folder.glob("index.sqlite*"))
    touched = [n for n in names if n.endswith(".kv")]
    report.rows.append(
        {
            "groups": groups,
            "tokens": tokens,
            "index_mib": index / 2**20,
            "start_s": median(opens),
            "memory_mib": memory / 2**20,
            "find_a_prefix_ms": 1000 * median(finds),
            "slowest_ms": 1000 * max(finds),
        }
    )
    report.check("start-up", f"{median(opens):.2f} s", "< 2 s", median(opens) < 2)
    report.check("prefixes not found whole", f"{wrong} of {len(finds)}", "0", wrong == 0)
    report.check("files opened", str(len(touched)), "0", not touched)
    return report


def simulate(folder: Path, layout: Layout, size: int, seed: int = 0) -> tuple[int, int]:
    """Fill a new cache directory: sessions of `TURNS` groups behind one shared system prompt.
    Returns groups and tokens."""
    DiskStore(folder, layout, limit=size).close()
    rng = np.random.default_rng(seed)
    db = open_index(folder)
    tag, now = tag_of(SPACE), time.time()
    used, row, tokens = 0, 0, 0
    system = 0

    def add(parent: int | None, start: int, count: int) -> None:
        nonlocal used, row, tokens
        row += 1
        name = f"{row:032x}"
        length = 400 + count * 5 + count // PAGE * layout.page_bytes
        ids = rng.integers(0, 49152, count).astype(np.int32)
        db.execute(
            "INSERT INTO groups VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (row, tag, layout.key, parent, start, ids.tobytes(), name, length, now, now, 0),
        )
        handle = os.open(folder / "groups" / f"{name}.kv", os.O_CREAT | os.O_WRONLY, 0o600)
        os.ftruncate(handle, length)
        os.close(handle)
        used += length
        tokens += count

    add(None, 0, SYSTEM_TOKENS)
    system = row
    while used < size:
        parent, start = system, SYSTEM_TOKENS
        for _ in range(TURNS):
            add(parent, start, TURN_TOKENS)
            parent, start = row, start + TURN_TOKENS
    db.commit()
    db.close()
    return row, tokens


def _open(folder: Path, layout: Layout) -> tuple[DiskStore, float]:
    began = time.perf_counter()
    store = DiskStore(folder, layout, limit=1 << 50)
    return store, time.perf_counter() - began


def _find(store: DiskStore, ids: IntArray) -> tuple[int, float]:
    """What a request brings about: tokens of its prefix that the tree knows then, and seconds."""
    tree = BackedTree(store.layout.page_size)
    began = time.perf_counter()
    for found in store.cover(SPACE, ids):
        tree.attach(DISK, SPACE, found.ids, found.start, found.slots, tree.generation)
    return tree.backed_tokens[DISK], time.perf_counter() - began


_watched: list[list[str]] = []
_hooked = False


@contextlib.contextmanager
def _opened_files() -> Iterator[list[str]]:
    """The names of the files that are opened meanwhile."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_note)
        _hooked = True
    names: list[str] = []
    _watched.append(names)
    try:
        yield names
    finally:
        _watched.remove(names)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], (str, Path)):
        for names in _watched:
            names.append(str(arguments[0]))
