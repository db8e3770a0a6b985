"""A picture of the tree: which prefixes are where, how often they were used, what keeps them.

Neither text nor token ids are in it; whoever may see them asks for a node by its id. Ids are digests of
the namespace and of all tokens up to the node's end, so that a node keeps its id for as long as its
edge is not cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from agentkv.engine.kv.backed import TIERS, BackedNode
from agentkv.engine.kv.eviction import Role
from agentkv.engine.kv.tree import Namespace, Node, RadixTree
from agentkv.engine.types import IntArray


@dataclass(frozen=True, slots=True)
class NodeView:
    """One edge. `age`: ticks since the last use (a request is about two). `tiers`: where it is;
    empty when it was evicted and only its ids are remembered. `namespace`: a number in this view."""

    id: str
    parent: str | None
    namespace: int
    start: int
    tokens: int
    tiers: tuple[str, ...]
    uses: int
    shares: int
    age: int
    role: str
    locked: bool
    pinned: bool
    paused: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TreeView:
    """`left_out`: nodes that were too many, or too deep; their tokens are in `left_out_tokens`."""

    nodes: tuple[NodeView, ...]
    namespaces: tuple[dict[str, int], ...]
    left_out: int
    left_out_tokens: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "nodes": [n.to_dict() for n in self.nodes],
            "namespaces": list(self.namespaces),
            "left_out": self.left_out,
            "left_out_tokens": self.left_out_tokens,
        }


Allowed = Callable[[Namespace], bool]


def view(
    tree: RadixTree,
    allowed: Allowed = lambda namespace: True,
    *,
    most: int = 2000,
    depth: int | None = None,
) -> TreeView:
    """The tree from its roots down, level by level, at most `most` nodes and `depth` levels."""
    nodes: list[NodeView] = []
    spaces: list[dict[str, int]] = []
    left_out = left_tokens = 0
    level: list[tuple[Node, hashlib.blake2b, str | None, int]] = []
    for namespace in tree.namespaces:
        if not allowed(namespace):
            continue
        root = tree.root(namespace)
        assert root is not None
        spaces.append({"tokens": root.live})
        hasher = _hasher(namespace)
        level += [(c, hasher, None, len(spaces) - 1) for c in root.children.values()]
    at = 0
    while level:
        below: list[tuple[Node, hashlib.blake2b, str | None, int]] = []
        at += 1
        level.sort(key=lambda item: -len(item[0].ids))
        for node, hasher, parent, space in level:
            if len(nodes) >= most or (depth is not None and at > depth):
                left_out += 1
                left_tokens += len(node.ids)
                below += [(c, hasher, None, space) for c in node.children.values()]
                continue
            own = hasher.copy()
            own.update(node.ids.astype("<i4").tobytes())
            shown = _shown(tree, node, own.hexdigest(), parent, space)
            nodes.append(shown)
            below += [(c, own, shown.id, space) for c in node.children.values()]
        level = below
    return TreeView(tuple(nodes), tuple(spaces), left_out, left_tokens)


def find(
    tree: RadixTree, node_id: str, allowed: Allowed = lambda namespace: True
) -> tuple[NodeView, IntArray, int] | None:
    """The node of an id (or of a beginning of it that no other has): the node, the token ids of its
    edge, and how many children it has. None if there is none, or more than one."""
    found: list[tuple[NodeView, IntArray, int]] = []
    for index, namespace in enumerate(n for n in tree.namespaces if allowed(n)):
        root = tree.root(namespace)
        assert root is not None
        stack = [(c, _hasher(namespace), None) for c in root.children.values()]
        walk: list[tuple[Node, hashlib.blake2b, str | None]] = list(stack)
        while walk:
            node, hasher, parent = walk.pop()
            own = hasher.copy()
            own.update(node.ids.astype("<i4").tobytes())
            digest = own.hexdigest()
            if digest.startswith(node_id):
                shown = _shown(tree, node, digest, parent, index)
                found.append((shown, node.ids, len(node.children)))
            walk += [(c, own, digest) for c in node.children.values()]
    return found[0] if len(found) == 1 else None


def _hasher(namespace: Namespace) -> hashlib.blake2b:
    seed = repr(namespace).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(seed, digest_size=8)


def _shown(tree: RadixTree, node: Node, digest: str, parent: str | None, space: int) -> NodeView:
    tiers = ["device"] if node.slots is not None else []
    if isinstance(node, BackedNode):
        tiers += [name for name, slots in zip(TIERS, node.back, strict=True) if slots is not None]
    return NodeView(
        id=digest,
        parent=parent,
        namespace=space,
        start=node.start,
        tokens=len(node.ids),
        tiers=tuple(tiers),
        uses=node.hits,
        shares=node.shares,
        age=tree.clock - node.last_use,
        role=Role(node.role).name.lower(),
        locked=node.locks > 0,
        pinned=node.pins > 0,
        paused=node.pauses > 0,
    )
