"""The order that costs least: which text goes ahead of which.

A call reads from memory up to the first text that changed, and computes the rest. With `p` the
chance that a text changes from one call to the next, the tokens that are computed again are, on
average, the sum over the texts of `tokens * chance that it or a text ahead of it changed`.

Two models of what changes together:

- *Nested* (`nested_order`): nothing was measured, and only levels are known. A change of a slow
  level (another build, another user) changes the faster ones too. Then the chance that anything
  ahead changed is that of the fastest text ahead, and the order of levels is optimal.
- *Independent* (`expected_order`): chances were measured. Then the cost is least by rising change
  odds per token, `p / ((1 - p) * tokens)`. With constraints ("this stays ahead of that") it is
  the scheduling problem `1|prec|sum w(1 - e^-rC)`: solved exactly, by dynamic programming over
  the sets that may stand at the front, for each group of up to `EXACT` texts that constraints
  join; greedily by modules above.

Equal costs keep the order that was given: fewer moves, smaller differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

EXACT = 20
"""Texts in a connected group up to which the order is exact."""

CHANCES: dict[str, float] = {
    "build": 0.0001,
    "deploy": 0.001,
    "tenant": 0.003,
    "user": 0.01,
    "session": 0.05,
    "turn": 0.5,
    "call": 1.0,
}
"""Chance that a text of a level differs from one call to the next, where nothing was measured."""

_TIE = 1e-12


def nested_order(ranks: Sequence[Any], before: Iterable[tuple[int, int]] = ()) -> list[int]:
    """Indices by rising rank, where each pair `(a, b)` of `before` keeps `a` ahead of `b`.

    A text is as fast as the fastest that must stand ahead of it. Pairs have `a < b`.
    """
    fastest = list(ranks)
    for first, then in sorted(set(before), key=lambda pair: pair[1]):
        fastest[then] = max(fastest[then], fastest[first])
    return sorted(range(len(fastest)), key=lambda i: fastest[i])


def expected_order(
    chances: Sequence[float], tokens: Sequence[int], before: Iterable[tuple[int, int]] = ()
) -> list[int]:
    """Indices in the order of least expected cost, for independent changes.

    `chances` are within [0, 1], `tokens` at least 0. Each pair `(a, b)` of `before` keeps `a`
    ahead of `b`, and has `a < b`: the order that is given is always allowed.
    """
    if len(chances) != len(tokens):
        raise ValueError(f"{len(chances)} chances for {len(tokens)} texts.")
    for p in chances:
        if not 0 <= p <= 1:
            raise ValueError(f"a chance is within 0 and 1, got {p}.")
    pairs = tuple(sorted(set(before)))
    for a, b in pairs:
        if not 0 <= a < b < len(tokens):
            raise ValueError(f"the pair ({a}, {b}) is not in the order that was given.")
    return list(_expected(tuple(chances), tuple(tokens), pairs))


def expected_cost(order: Sequence[int], chances: Sequence[float], tokens: Sequence[int]) -> float:
    """Tokens that a call computes again, on average, with the texts in this order."""
    cost, same = 0.0, 1.0
    for i in order:
        same *= 1 - chances[i]
        cost += tokens[i] * (1 - same)
    return cost


@dataclass(frozen=True, slots=True)
class _Block:
    """Texts that stand together: what they save if nothing ahead changed, and their chance to stay."""

    units: tuple[int, ...]
    value: float
    same: float

    @property
    def ratio(self) -> float:
        return self.value / (1 - self.same) if self.same < 1 else float("inf")

    def then(self, other: _Block) -> _Block:
        value = self.value + self.same * other.value
        return _Block(self.units + other.units, value, self.same * other.same)


@lru_cache(maxsize=512)
def _expected(
    chances: tuple[float, ...], tokens: tuple[int, ...], before: tuple[tuple[int, int], ...]
) -> tuple[int, ...]:
    ahead: list[set[int]] = [set() for _ in tokens]
    for first, then in before:
        ahead[then].add(first)
    ones = [
        _Block((i,), t * (1 - p), 1 - p)
        for i, (p, t) in enumerate(zip(chances, tokens, strict=True))
    ]
    queues: list[list[_Block]] = []
    for group in _groups(len(tokens), before):
        if len(group) == 1:
            best = group
        elif len(group) <= EXACT:
            best = _exact(group, ahead, chances, tokens)
        else:
            best = _greedy(group, ahead, ones)
        queues.append(_blocks([ones[i] for i in best]))
    out: list[int] = []
    heads = [q[::-1] for q in queues]
    while any(heads):
        # Between groups there is no constraint: the block that saves most for its risk goes first.
        queue = min((h for h in heads if h), key=lambda h: (-h[-1].ratio, h[-1].units[0]))
        out.extend(queue.pop().units)
    return tuple(out)


def _groups(count: int, before: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Texts that constraints join, each group in the order given."""
    root = list(range(count))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for a, b in before:
        root[find(b)] = find(a)
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(find(i), []).append(i)
    return list(groups.values())


def _blocks(sequence: Sequence[_Block]) -> list[_Block]:
    """A sequence cut where the ratio falls: only there may another group's block come between."""
    out: list[_Block] = []
    for block in sequence:
        while out and block.ratio > out[-1].ratio:
            block = out.pop().then(block)
        out.append(block)
    return out


def _exact(
    group: Sequence[int],
    ahead: Sequence[set[int]],
    chances: Sequence[float],
    tokens: Sequence[int],
) -> list[int]:
    """Dynamic programming over the sets that may stand at the front, by their size.

    `best[s]` is what the set `s` saves in its best order; its last text `i` adds
    `tokens[i] * chance that all of s stays`.
    """
    import numpy as np

    n = len(group)
    place = {unit: i for i, unit in enumerate(group)}
    needs = [sum(1 << place[a] for a in ahead[unit]) for unit in group]
    same = np.ones(1)
    for unit in group:
        same = np.concatenate([same, same * (1 - chances[unit])])
    masks = np.arange(1 << n, dtype=np.int64)
    allowed = np.ones(1 << n, dtype=bool)
    size = np.zeros(1 << n, dtype=np.int8)
    for i, need in enumerate(needs):
        has = (masks >> i) & 1 == 1
        size += has
        if need:
            allowed &= ~has | (masks & need == need)
    fronts = masks[allowed]
    fronts = fronts[np.argsort(size[fronts], kind="stable")]
    ends = np.cumsum(np.bincount(size[fronts], minlength=n + 1))
    best = np.full(1 << n, -np.inf)
    best[0] = 0.0
    last = np.zeros(1 << n, dtype=np.int8)
    slack = _TIE * (1 + sum(tokens[unit] for unit in group))
    for layer in range(1, n + 1):
        here = fronts[ends[layer - 1] : ends[layer]]
        for i in range(n):
            with_i = here[(here >> i) & 1 == 1]
            found = best[with_i ^ (1 << i)] + tokens[group[i]] * same[with_i]
            # Among equals the later text goes last, as it was given.
            better = found >= best[with_i] - slack
            last[with_i[better]] = i
            best[with_i] = np.maximum(best[with_i], found)
    out: list[int] = []
    front = (1 << n) - 1
    while front:
        i = int(last[front])
        out.append(group[i])
        front ^= 1 << i
    return out[::-1]


def _greedy(group: Sequence[int], ahead: Sequence[set[int]], ones: Sequence[_Block]) -> list[int]:
    """Again and again the text that is best together with all that must stand ahead of it."""
    left = dict.fromkeys(group)
    out: list[int] = []
    while left:
        modules = [_module(unit, ahead, ones, left) for unit in left]
        best = max(modules, key=lambda m: (m.ratio, -m.units[0]))
        out.extend(best.units)
        for unit in best.units:
            del left[unit]
    return out


def _module(
    unit: int, ahead: Sequence[set[int]], ones: Sequence[_Block], left: dict[int, None]
) -> _Block:
    """A text behind what must stand ahead of it and is left, in the order given."""
    needed = {unit}
    stack = [unit]
    while stack:
        for other in ahead[stack.pop()]:
            if other in left and other not in needed:
                needed.add(other)
                stack.append(other)
    first, *rest = sorted(needed)
    block = ones[first]
    for other in rest:
        block = block.then(ones[other])
    return block
