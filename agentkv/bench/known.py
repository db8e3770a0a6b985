"""The oracle of prefix reuse: the longest prefix that any earlier call made known.

Deliberately naive, so that it can be believed: it keeps every sequence as an array and compares
the new prompt with each of them. No tree, no hash, no page table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from agentkv.engine.types import IntArray


def common_prefix(a: IntArray, b: IntArray) -> int:
    """How many leading tokens of `a` and `b` are equal."""
    n = min(len(a), len(b))
    if n == 0 or a[0] != b[0]:
        return 0
    differs = a[:n] != b[:n]
    first = int(differs.argmax())
    return first if differs[first] else n


class KnownPrefixes:
    """Every sequence whose K/V an unlimited cache would hold."""

    def __init__(self) -> None:
        self._known: list[IntArray] = []

    def longest(self, prompt: IntArray, page_size: int = 1) -> int:
        """Tokens of `prompt` that can be reused: at most `n - 1`, in whole pages.

        One token is always computed, since its logits are wanted. A sequence of `m` tokens is held
        in whole pages, so `floor(common / page_size)` pages are the same as the floor of both.
        """
        best = max((common_prefix(prompt, known) for known in self._known), default=0)
        best = min(best, max(0, len(prompt) - 1))
        return best - best % page_size

    def add(self, prompt: IntArray, output: Sequence[int] = ()) -> None:
        """A finished call. The last sampled token was never run through the model: not known."""
        tail = np.asarray(list(output)[:-1], dtype=np.int32)
        self._known.append(np.concatenate([prompt, tail]) if len(tail) else prompt)


def distinct_tokens(sequences: Iterable[IntArray]) -> int:
    """How many tokens a prefix tree of `sequences` has: the size of an unlimited cache.

    Sorted, each sequence adds what it does not share with its predecessor.
    """
    ordered = sorted(s.astype(">i4").tobytes() for s in sequences)
    total = 0
    before = np.empty(0, dtype=np.int32)
    for data in ordered:
        current = np.frombuffer(data, dtype=">i4").astype(np.int32)
        total += len(current) - common_prefix(before, current)
        before = current
    return total
