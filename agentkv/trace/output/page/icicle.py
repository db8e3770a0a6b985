"""The icicle: what prompts have in common. Across: tokens from the start of the prompt. Down: the
requests that begin so. A block's area is therefore the prompt tokens that it stands for."""

from __future__ import annotations

from dataclasses import dataclass

from agentkv.trace.output import words
from agentkv.trace.output.difference import one_line
from agentkv.trace.output.page.markup import Markup, el, join, percentage
from agentkv.trace.output.page.section import Section, figure, legend, scroll, section
from agentkv.trace.report import TraceReport, TreeNode

_MOST = 600
"""Blocks that are drawn; the largest ones."""
_LABEL = 160
_LEAST_HIGH, _LEAST_WIDE = 0.034, 0.045
"""Shares of the picture below which a block has no room for its label."""


@dataclass(frozen=True, slots=True)
class Block:
    """`start`: tokens in front of it. `top`: requests above it. Same units as the node's own."""

    node: TreeNode
    level: int
    start: int
    top: int
    parent: int
    """Its place in the list of blocks, -1 for none."""

    @property
    def size(self) -> int:
        return self.node.tokens * self.node.requests


def icicle(report: TraceReport) -> Section | None:
    if report.tree is None or not report.tree.requests:
        return None
    blocks = laid_out(report.tree)
    if not blocks:
        return None
    wide = max(b.start + b.node.tokens for b in blocks)
    high = report.tree.requests
    if not wide:
        return None
    parts = [_block(i, b, wide, high) for i, b in enumerate(blocks)]
    picture = el(
        "div",
        el(
            "div",
            el(
                "svg",
                parts,
                class_="icicle",
                id="icicle",
                role="group",
                aria_label="Tree of the prompts' beginnings",
                data_wide=wide,
                data_high=high,
            ),
            _axis(wide),
            class_="wide",
        ),
        class_="scroll",
    )
    caption = join(
        f"Across: tokens from the start of the prompt, up to {words.count(wide)}. Down: "
        f"{words.plural(high, 'request')}. Blocks at the left edge are shared by all that stand to "
        "the right of them.",
        legend([("h0", "computed each time"), ("h3", "partly reused"), ("h7", "reused")]),
        el(
            "span",
            "Select a block to enlarge it. Arrow keys move, Enter enlarges, Escape goes back.",
            class_="hint",
            hidden=True,
        ),
    )
    return section(
        "tree",
        "What the prompts share",
        "One tall block at the left, in full colour, is a healthy log; many thin ones below each other "
        "are prompts that part too early.",
        el("p", class_="readout", id="tree-readout", hidden=True),
        figure(picture, caption, _table(blocks), id="beginnings"),
    )


def laid_out(root: TreeNode) -> list[Block]:
    """Blocks in the order of reading, parents first; the root has one only if it has tokens."""
    every: list[Block] = []
    stack = [(root, 0, 0, 0, -1)]
    while stack:
        node, level, start, top, parent = stack.pop()
        mine = parent
        if node.tokens:
            mine = len(every)
            every.append(Block(node, level, start, top, parent))
        below, rows = top, []
        for child in node.children:
            rows.append((child, level + bool(node.tokens), start + node.tokens, below, mine))
            below += child.requests
        stack += reversed(rows)
    if len(every) <= _MOST:
        return every
    # A block is at most as high as its parent, but may be wider: the parents of what stays must stay.
    keep: set[int] = set()
    for i in sorted(range(len(every)), key=lambda i: -every[i].size):
        chain, at = [], i
        while at >= 0 and at not in keep:
            chain.append(at)
            at = every[at].parent
        if len(keep) + len(chain) <= _MOST:
            keep.update(chain)
    place = {old: new for new, old in enumerate(sorted(keep))}
    return [
        Block(b.node, b.level, b.start, b.top, place.get(b.parent, -1))
        for b in (every[i] for i in sorted(keep))
    ]


def share(node: TreeNode) -> float | None:
    """Of its tokens, those that were reused; None where they were not counted."""
    whole = node.reused + node.computed
    return node.reused / whole if whole else None


def said(node: TreeNode) -> str:
    return (
        f"{one_line(node.label, _LABEL) or 'text'}: {words.plural(node.tokens, 'token')}, "
        f"{words.plural(node.requests, 'request')}, {words.percent(share(node))} reused"
    )


def _block(i: int, b: Block, wide: int, high: int) -> Markup:
    node = b.node
    width, height = node.tokens / wide, node.requests / high
    label = None
    if width >= _LEAST_WIDE and height >= _LEAST_HIGH:
        label = el("text", one_line(node.label, _LABEL), x="6", y="15")
    reused = share(node)
    level = 0 if reused is None else min(7, round(reused * 7))
    return el(
        "svg",
        el(
            "rect", width="100%", height="100%", class_="unknown" if reused is None else f"h{level}"
        ),
        label,
        x=percentage(b.start / wide),
        y=percentage(b.top / high),
        width=percentage(width),
        height=percentage(height),
        class_="block strong" if level >= 4 else "block",
        data_s=b.start,
        data_t=b.top,
        data_n=node.tokens,
        data_r=node.requests,
        data_p=b.parent,
        role="img",
        aria_label=said(node),
        tabindex=0 if i == 0 else -1,
    )


def _axis(wide: int) -> Markup:
    return el(
        "svg",
        (
            el(
                "text",
                words.short(wide * i / 4) if i else "0",
                x=percentage(i / 4),
                y="14",
                text_anchor="start" if i == 0 else "end" if i == 4 else "middle",
            )
            for i in range(5)
        ),
        class_="x",
        id="icicle-axis",
        aria_hidden="true",
    )


def _table(blocks: list[Block]) -> Markup:
    rows = [
        el(
            "tr",
            el("td", b.level + 1, class_="n"),
            el("th", one_line(b.node.label, _LABEL), scope="row"),
            el("td", words.count(b.node.tokens), class_="n"),
            el("td", words.count(b.node.requests), class_="n"),
            el("td", words.percent(share(b.node)), class_="n"),
        )
        for b in blocks
    ]
    heads = [("Level", "n"), ("Beginning", ""), ("Tokens", "n"), ("Requests", "n"), ("Reused", "n")]
    name = "Beginnings of prompts, each below the one that it continues"
    table = el(
        "table",
        el("caption", name, class_="hidden"),
        el("thead", el("tr", (el("th", h, scope="col", class_=c or None) for h, c in heads))),
        el("tbody", rows),
    )
    return el("details", el("summary", "The same as a table"), scroll(name, table), class_="data")
