"""The oracle against brute force over Python lists, and the counting of distinct tokens."""

from __future__ import annotations

import numpy as np
import pytest

from agentkv.bench.known import KnownPrefixes, common_prefix, distinct_tokens
from agentkv.engine.types import as_ids


def brute(prompt: list[int], known: list[list[int]], page: int) -> int:
    best = 0
    for other in known:
        same = 0
        for a, b in zip(prompt, other, strict=False):
            if a != b:
                break
            same += 1
        best = max(best, same)
    best = min(best, len(prompt) - 1)
    return best // page * page


@pytest.mark.parametrize("page", [1, 3, 16])
def test_oracle_is_the_brute_force_answer(page: int) -> None:
    rng = np.random.default_rng(5)
    oracle = KnownPrefixes()
    known: list[list[int]] = []
    for _ in range(300):
        stem = known[int(rng.integers(len(known)))] if known and rng.random() < 0.8 else []
        cut = int(rng.integers(0, len(stem) + 1))
        prompt = [*stem[:cut], *rng.integers(0, 3, int(rng.integers(1, 40))).tolist()]
        output = rng.integers(0, 3, int(rng.integers(0, 5))).tolist()
        assert oracle.longest(as_ids(prompt), page) == brute(prompt, known, page)
        oracle.add(as_ids(prompt), output)
        known.append([*prompt, *output[:-1]])


def test_the_last_sampled_token_is_not_known() -> None:
    oracle = KnownPrefixes()
    oracle.add(as_ids([1, 2]), [3, 4])
    assert oracle.longest(as_ids([1, 2, 3, 4, 5])) == 3


def test_one_token_is_always_computed() -> None:
    oracle = KnownPrefixes()
    oracle.add(as_ids([1, 2, 3]))
    assert oracle.longest(as_ids([1, 2, 3])) == 2
    assert oracle.longest(as_ids([1])) == 0
    assert oracle.longest(as_ids([9])) == 0


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2], [1, 2, 3], 2), ([1, 2], [1, 3], 1)],
)
def test_common_prefix(a: list[int], b: list[int], same: int) -> None:
    assert common_prefix(as_ids(a), as_ids(b)) == same


def test_distinct_tokens_is_the_size_of_a_trie() -> None:
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 300, int(rng.integers(1, 6))).tolist() for _ in range(50)]
    sequences += [[*s[:2], 7] for s in sequences[:20]] + [[256, 1], [1, 256], [65_536]]
    trie = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert distinct_tokens(as_ids(s) for s in sequences) == len(trie)
