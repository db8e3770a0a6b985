"""The cache of a server as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]


def stats_lines(stats: Mapping[str, Any]) -> Iterator[str]:
    """One fact a line."""
    pool = stats["pool_tokens"]
    used = pool - stats["free_tokens"]
    yield f"model         {stats['model']}, {stats['kv_dtype']}, page {stats['page_size']}"
    yield f"pool          {used:,} of {pool:,} tokens used ({used / pool:.0%})"
    yield (
        f"              evictable {stats['evictable_tokens']:,}, locked {stats['locked_tokens']:,}, "
        f"private {stats['private_tokens']:,}"
    )
    yield f"kept          pinned {stats['pinned_tokens']:,}, paused {stats['paused_tokens']:,}"
    cached = stats["cached_tokens_total"]
    shown = ", ".join(f"{tier} {tokens:,}" for tier, tokens in cached.items())
    yield (
        f"hit rate      {stats['cache_hit_rate']:.1%} of {stats['prompt_tokens_total']:,} prompt "
        f"tokens ({shown})"
    )
    yield f"evicted       {stats['evicted_tokens_total']:,} tokens, by {stats['eviction']}"
    for tier, facts in stats["tiers"].items():
        known = ("tokens", "loaded_tokens_total", "stored_tokens_total", "failed_transfers_total")
        parts = [f"{n.split('_')[0]} {int(facts[n]):,}" for n in known if n in facts]
        if parts:
            yield f"{tier:<14}{', '.join(parts)}"


def tree_lines(tree: Mapping[str, Any]) -> Iterator[str]:
    """The tree with its branches, largest first."""
    below: dict[str | None, list[Node]] = {}
    for node in tree["nodes"]:
        below.setdefault(node["parent"], []).append(node)
    for index, space in enumerate(tree["namespaces"]):
        yield f"namespace {index}: {space['tokens']:,} tokens in memory"
        roots = [n for n in below.get(None, []) if n["namespace"] == index]
        yield from _branches(roots, below, "")
    if tree["left_out"]:
        yield f"and {tree['left_out']:,} more nodes, {tree['left_out_tokens']:,} tokens"


def _branches(
    nodes: Sequence[Node], below: Mapping[str | None, Sequence[Node]], lead: str
) -> Iterator[str]:
    # An agent's history is hundreds of nodes deep: no recursion.
    stack = [(node, lead, i == len(nodes) - 1) for i, node in enumerate(nodes)][::-1]
    while stack:
        node, lead, last = stack.pop()
        yield f"{lead}{'└' if last else '├'} {node_line(node)}"
        children = below.get(node["id"], ())
        inner = lead + ("  " if last else "│ ")
        if len(children) == 1 and len(inner) > 40:
            inner = lead  # a long chain stays where it is
        stack += [(c, inner, i == len(children) - 1) for i, c in enumerate(children)][::-1]


def top_lines(nodes: Sequence[Node], limit: int) -> Iterator[str]:
    """What most others shared, then what was used most; a node a line."""
    order = sorted(nodes, key=lambda n: (-n["shares"], -n["uses"], -n["tokens"]))
    for node in order[:limit]:
        yield f"{node['start']:>8,} + {node_line(node)}"


def node_line(node: Node) -> str:
    """Tokens, where they are, how they were used, what keeps them, the id."""
    kept = [word for word in ("pinned", "paused", "locked") if node[word]]
    where = "+".join(node["tiers"]) or "evicted"
    role = [] if node["role"] == "plain" else [node["role"]]
    uses = f"{node['uses']:,} uses"
    if node["shares"]:
        uses += f", {node['shares']:,} shared"
    parts = [f"{node['tokens']:,} tokens", *role, where, uses, *kept, node["id"]]
    return "  ".join(parts)


def pin_lines(pins: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for pin in pins:
        yield f"{pin['pin']}  {pin['tokens']:,} tokens  {pin['expires_in']:,.0f} s left"
