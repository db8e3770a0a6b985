"""What the prompts of a log begin with, as a small tree of parts: for the report's icicle."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentkv.trace.call import Call
from agentkv.trace.render import Rendered
from agentkv.trace.report import TreeNode

NODES = 20_000
CHILDREN = 2_000
DEPTH = 24
SHOWN_CHILDREN, SHOWN_DEPTH, SHOWN = 6, 10, 160


@dataclass(slots=True)
class _Node:
    label: str
    tokens: int = 0
    requests: int = 0
    reused: int = 0
    computed: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


class Prefixes:
    """Bounded: parts beyond the limits are counted as `other` of their parent."""

    def __init__(self) -> None:
        self._root = _Node("all requests")
        self._nodes = 1

    def add(self, call: Call, rendered: Rendered, cached: int) -> None:
        """One call; `cached` tokens of its prompt were served."""
        node = self._root
        node.requests += 1
        node.reused += cached
        node.computed += rendered.tokens - cached
        spans = {s.name: s for s in rendered.prompt.spans}
        for part in call.parts[:DEPTH]:
            span = spans.get(part.name)
            if span is None:
                continue
            child = node.children.get(part.key)
            if child is None:
                full = self._nodes >= NODES or len(node.children) >= CHILDREN
                key = "other" if full else part.key
                child = node.children.get(key)
                if child is None:
                    label = "others" if full else f"{part.name}: {_words(part.text)}"
                    child = node.children[key] = _Node(label)
                    self._nodes += 1
                if full:
                    child.requests += 1
                    child.tokens = max(child.tokens, span.end - span.start)
                    return
            held = max(0, min(cached, span.end) - span.start)
            child.tokens = span.end - span.start
            child.requests += 1
            child.reused += held
            child.computed += span.end - span.start - held
            node = child

    def tree(self) -> TreeNode | None:
        """The widest branches, at most 160 nodes."""
        if not self._root.children:
            return None
        left = [SHOWN - 1]
        return _shown(self._root, 0, left)


def _shown(node: _Node, depth: int, left: list[int]) -> TreeNode:
    """`left`: nodes that may still be shown. A node's children take theirs before their own children
    do, so that every level adds up."""
    order = sorted(node.children.values(), key=lambda n: -n.requests * n.tokens)
    chosen = (
        order[: min(SHOWN_CHILDREN, left[0] - 1)] if depth < SHOWN_DEPTH and left[0] > 1 else []
    )
    rest = order[len(chosen) :] if chosen else []
    left[0] -= len(chosen) + bool(rest)
    children = [_shown(child, depth + 1, left) for child in chosen]
    if rest:
        children.append(
            TreeNode(
                f"{len(rest):,} others",
                max(n.tokens for n in rest),
                sum(n.requests for n in rest),
                sum(n.reused for n in rest),
                sum(n.computed for n in rest),
            )
        )
    return TreeNode(
        node.label, node.tokens, node.requests, node.reused, node.computed, tuple(children)
    )


def _words(text: str) -> str:
    words = " ".join(text[:200].split())
    return words[:48] + ("…" if len(words) > 48 else "")
