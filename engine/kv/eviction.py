"""Which leaf leaves first: eviction policies, behind one protocol.

A policy maps a node to a key, in ticks of the tree's clock (a request is about two); the lowest key
goes first. A key may not depend on the time of asking, or a heap of keys would be stale at once. It
need not: if the odds that a prefix is used again halve every `HALF` ticks after its last use,

    odds(now) = weight * 2 ** -((now - last_use) / HALF)

then ordering by `odds * cost` is ordering by `last_use + HALF * log2(weight * cost)`, whatever `now`
is. `lru` is the case of equal weights and costs. All bonuses are bounded: what nobody uses any more
leaves in the end, however much it was used.

`hot`   more sharing, more weight.
`role`  `hot`, and what a prompt is made of: tools and instructions leave last, one-time tails first.
`cost`  `role`, and what computing a token again costs: attention makes deep ones dearer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkv.engine.kv.tree import Node
    from agentkv.engine.types import Span

EvictionKey = Callable[["Node"], float]
Marks = tuple[tuple[int, int], ...]
"""`(end, role)` in ascending order: tokens from the last mark's end up to `end` have this role."""

HALF = 32.0
"""Ticks in which the odds of a reuse halve."""

MOST_HOT = 256.0

DEEP = 4096
"""Tokens of context at which attention costs as much as everything else (a model of some hundred
million parameters; larger models reach it later)."""


class Role(IntEnum):
    """How long a piece of a prompt is likely to be of use to others. The default says nothing."""

    TAIL = -1
    PLAIN = 0
    SHARED = 1
    CORE = 2


ROLE_TICKS = {Role.TAIL: -16.0, Role.PLAIN: 0.0, Role.SHARED: 128.0, Role.CORE: 256.0}
"""Bonus in ticks; `TAIL` counts only until it was used a second time."""

_ROLES = {
    "tools": Role.CORE,
    "instructions": Role.CORE,
    "examples": Role.SHARED,
    "documents": Role.SHARED,
    "memory": Role.SHARED,
    "history": Role.PLAIN,
    "context": Role.TAIL,
    "question": Role.TAIL,
}


def lru(node: Node) -> float:
    """Least recently used first."""
    return float(node.last_use)


def hot(node: Node) -> float:
    """LRU with a bounded bonus for prefixes that many calls shared.

    A node that `n` others shared counts as `HALF * log2(1 + n)` ticks younger, at most 256. So a
    burst of one-time prompts cannot flush a prefix that hundreds of calls used, and a prefix that
    nobody uses any more still goes after about 128 requests. Turns of one conversation are no
    shares: counting those too would keep the beginnings of finished conversations.
    """
    return node.last_use + min(HALF * math.log2(1 + node.shares), MOST_HOT)


def role(node: Node) -> float:
    """`hot`, with a bonus for what stands in front of many prompts, by `Role`."""
    ticks = ROLE_TICKS[Role(node.role)]
    return hot(node) + (ticks if ticks > 0 or node.shares == 0 else 0.0)


def cost(node: Node) -> float:
    """`role`, weighted with the relative cost of computing a token at this depth."""
    return role(node) + HALF * math.log2(1 + node.start / DEEP)


POLICIES: dict[str, EvictionKey] = {"lru": lru, "hot": hot, "role": role, "cost": cost}


def marks_of(spans: Sequence[Span]) -> Marks:
    """Roles of a prompt's tokens, from the kinds of its segments; neighbours of one role are one.

    What a template puts between two segments goes with the one before it.
    """
    out: list[tuple[int, int]] = []
    for span in spans:
        role = _ROLES.get(span.kind)
        if role is None:
            role = Role(out[-1][1]) if out else Role.PLAIN
        if out and out[-1][1] == role:
            out.pop()
        out.append((span.end, int(role)))
    return tuple(out)
