"""What the radix tree costs: microseconds for match, insert and evict, beside numpy's own compare.

The floor is the time numpy takes to find the first difference between two arrays as long as the
prompt. Budget: ten times that, plus 30 microseconds for each node visited. Every repetition works
on fresh tokens. A shared prefix is one that other prompts have left on the way (five pieces); half of it ends inside a piece, so that insert splits an edge.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from agentkv.bench.check import Report, median
from agentkv.engine.kv.tree import RadixTree
from agentkv.engine.types import IntArray

LENGTHS = (1024, 8192, 32768)
SHARES = (0.0, 0.5, 1.0)
TREES = (100, 10_000)
NODE_BUDGET_US = 30.0
FLOOR_FACTOR = 10.0
EVICT_BUDGET_US = 100.0
T = TypeVar("T")

NAMESPACE = ("bench",)
VOCAB = 50_000
LEAF = 64
PIECES = 5


def run(
    page_sizes: Sequence[int] = (1, 16),
    *,
    lengths: Sequence[int] = LENGTHS,
    trees: Sequence[int] = TREES,
    repeats: int = 15,
    seed: int = 0,
) -> Report:
    """Measure match, insert and evict. Deterministic but for the clock."""
    report = Report("bookkeeping", "Radix tree, microseconds a call (median)")
    rng = np.random.default_rng(seed)
    floors = {n: _floor(rng, n, max(repeats, 50)) for n in lengths}
    for page in page_sizes:
        for size in trees:
            for n in lengths:
                for share in SHARES:
                    tree = grown_tree(size, page, rng)
                    nodes = count_nodes(tree)
                    match_us, insert_us, visited = _match_insert(tree, rng, n, share, repeats)
                    budget = FLOOR_FACTOR * floors[n] + NODE_BUDGET_US * visited
                    report.rows.append(
                        {
                            "page": page,
                            "tree_nodes": nodes,
                            "tokens": n,
                            "shared": f"{share:.0%}",
                            "visited": visited,
                            "numpy_us": floors[n],
                            "match_us": match_us,
                            "insert_us": insert_us,
                            "budget_us": budget,
                            "ok": match_us <= budget and insert_us <= budget,
                        }
                    )
    failed = [row for row in report.rows if not row["ok"]]
    report.check(
        "match and insert",
        f"{len(report.rows) - len(failed)} of {len(report.rows)} rows within budget",
        f"{FLOOR_FACTOR:.0f} x numpy + {NODE_BUDGET_US:.0f} us a node",
        not failed,
    )
    for page in page_sizes:
        half, worst = evict_one_leaf(max(trees), page, rng)
        report.check(
            f"evict one leaf, {max(trees):,} nodes, page {page}",
            f"median {half:.1f} us, p99 {worst:.1f} us",
            f"< {EVICT_BUDGET_US:.0f} us",
            half < EVICT_BUDGET_US,
        )
    return report


def grown_tree(nodes: int, page_size: int, rng: np.random.Generator) -> RadixTree:
    """A tree of at least `nodes` nodes: each sequence leaves an earlier one at a random place."""
    tree = RadixTree(page_size)
    sequences = [_random(rng, 4 * LEAF)]
    _insert(tree, sequences[0])
    made = 1
    while made < nodes:
        parent = sequences[int(rng.integers(len(sequences)))]
        cut = int(rng.integers(1, len(parent) // page_size)) * page_size
        child = np.concatenate([parent[:cut], _random(rng, LEAF)])[: 16 * LEAF]
        before = tree.match(NAMESPACE, child)
        made += 2 if before.offset and before.offset < len(before.node.ids) else 1
        _insert(tree, child)
        sequences.append(child)
    return tree


def count_nodes(tree: RadixTree) -> int:
    return sum(1 for _ in tree.nodes())


def evict_one_leaf(nodes: int, page_size: int, rng: np.random.Generator) -> tuple[float, float]:
    """Median and 99th percentile, in microseconds, of evicting one leaf of exactly `LEAF` tokens."""
    tree = RadixTree(page_size)
    stem = _random(rng, LEAF)
    for _ in range(nodes):
        _insert(tree, np.concatenate([stem, _random(rng, LEAF)]))
    spent = []
    for _ in range(min(500, nodes // 2)):
        start = time.perf_counter_ns()
        freed = tree.evict(LEAF)
        spent.append((time.perf_counter_ns() - start) / 1000)
        if len(freed) != LEAF:
            raise AssertionError(f"evicting one leaf of {LEAF} tokens freed {len(freed)}")
    return median(spent), float(np.percentile(spent, 99))


def _match_insert(
    tree: RadixTree, rng: np.random.Generator, n: int, share: float, repeats: int
) -> tuple[float, float, int]:
    """Median microseconds of a match and of an insert, and how many nodes the insert's path has."""
    matches, inserts, visited = [], [], 0
    shared = int(n * share)
    for _ in range(repeats):
        base = _random(rng, n)
        if shared:
            _insert(tree, base)
            for piece in range(1, PIECES):
                # Other prompts left this one on the way: its path is several nodes, as in use.
                cut = n * piece // PIECES // LEAF * LEAF
                _insert(tree, np.concatenate([base[:cut], _random(rng, LEAF)]))
        prompt = np.concatenate([base[:shared], _random(rng, n - shared)])
        slots = np.arange(n, dtype=np.int32)
        spent, found = _timed(partial(tree.match, NAMESPACE, prompt))
        if found.length != shared:
            raise AssertionError(f"{found.length} of {shared} shared tokens were found")
        matches.append(spent)
        spent, existed = _timed(partial(tree.insert, NAMESPACE, prompt, slots))
        if existed != shared:
            raise AssertionError(f"{existed} of {shared} shared tokens existed")
        inserts.append(spent)
        visited = len(tree.match(NAMESPACE, prompt).node.path())
    return median(matches), median(inserts), visited


def _floor(rng: np.random.Generator, n: int, repeats: int) -> float:
    """Microseconds numpy needs to find the first difference of two arrays that differ at the end."""
    a = _random(rng, n)
    spent = []
    for _ in range(repeats):
        b = a.copy()
        b[-1] += 1
        took, first = _timed(partial(_first_difference, a, b))
        if first != n - 1:
            raise AssertionError("the compare stopped early")
        spent.append(took)
    return median(spent)


def _first_difference(a: IntArray, b: IntArray) -> int:
    return int((a != b).argmax())


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        result = work()
        return (time.perf_counter_ns() - start) / 1000, result
    finally:
        if enabled:
            gc.enable()


def _random(rng: np.random.Generator, n: int) -> IntArray:
    return rng.integers(0, VOCAB, n, dtype=np.int32)


def _insert(tree: RadixTree, ids: IntArray) -> None:
    tree.insert(NAMESPACE, ids, np.zeros(len(ids), dtype=np.int32))
