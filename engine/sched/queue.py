"""In which order waiting requests are tried for admission.

`fcfs`: by arrival. `lpm`: longest cached prefix first, which raises reuse because prefixes are used
while they are still there; with ageing, since pure LPM starves cold requests (every pass that a
request waits counts as `AGEING` cached tokens). `dfs-weight`: depth first through the tree, heavier
branches first, so that requests of one branch run together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agentkv.engine.kv.cache import KVCache
from agentkv.engine.kv.tree import Node
from agentkv.engine.sched.request import Request

AGEING = 64
LOOK_AHEAD = 128
"""At most so many waiting requests are matched a pass; the others keep their order of arrival."""


class Policy(Protocol):
    def __call__(self, waiting: list[Request], cache: KVCache) -> list[Request]: ...


def fcfs(waiting: list[Request], cache: KVCache) -> list[Request]:
    return list(waiting)


def lpm(waiting: list[Request], cache: KVCache) -> list[Request]:
    head, tail = waiting[:LOOK_AHEAD], waiting[LOOK_AHEAD:]
    return sorted(head, key=lambda r: -(cache.peek(r) + AGEING * r.passes)) + tail


def dfs_weight(waiting: list[Request], cache: KVCache) -> list[Request]:
    head, tail = waiting[:LOOK_AHEAD], waiting[LOOK_AHEAD:]
    paths: list[list[Node]] = []
    weight: dict[int, int] = {}
    for request in head:
        match = cache.tree.match(request.namespace, request.tokens, request.match_limit)
        path = match.node.path() if cache.enabled else []
        paths.append(path)
        for node in path:
            weight[id(node)] = weight.get(id(node), 0) + 1
    order: dict[int, int] = {}

    def key(i: int) -> tuple[tuple[int, int, int], ...]:
        # Of two branches of one weight, the one that ran last goes on.
        return tuple(
            (-weight[id(n)], -n.last_use, order.setdefault(id(n), len(order))) for n in paths[i]
        )

    # A pass costs a request's place one step per `LOOK_AHEAD` passes waited: nobody starves.
    ranked = sorted(range(len(head)), key=lambda i: (-(head[i].passes // LOOK_AHEAD), *key(i)))
    return [head[i] for i in ranked] + tail


POLICIES: dict[str, Callable[[list[Request], KVCache], list[Request]]] = {
    "fcfs": fcfs,
    "lpm": lpm,
    "dfs-weight": dfs_weight,
}
