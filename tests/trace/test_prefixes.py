"""The icicle's tree: bounded, and every level of it adds up."""

from __future__ import annotations

from agentkv.trace.prefixes import SHOWN, Prefixes
from agentkv.trace.render import Renderer
from agentkv.trace.report import TreeNode
from tests.trace.build import call


def count(node: TreeNode) -> int:
    return 1 + sum(count(c) for c in node.children)


def test_what_is_not_shown_is_counted_as_others_on_every_level() -> None:
    prefixes, renderer = Prefixes(), Renderer()
    for site in range(40):
        for n in range(12):
            talk = [("user", f"q{site}-{n % 9}"), ("assistant", f"a{n % 7}"), ("user", f"r{n}")]
            one = call(*talk, system=f"You are number {site}. " * 5)
            prefixes.add(one, renderer.render(one), 3)
    tree = prefixes.tree()
    assert tree is not None and tree.requests == 480
    assert count(tree) <= SHOWN
    assert tree.children[-1].label == "34 others"

    def adds_up(node: TreeNode) -> None:
        if node.children:
            assert sum(c.requests for c in node.children) == node.requests, node.label
        for child in node.children:
            adds_up(child)

    adds_up(tree)
