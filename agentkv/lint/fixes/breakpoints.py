"""How many cache markers a request has and where they stand, in requests that are written out.

The text that is sent stays the same in all of these; without them the call is refused by the
provider, or does not find what it kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Fix
from agentkv.lint.fixes import objects
from agentkv.lint.fixes.markers import MARK, around, refused
from agentkv.lint.fixes.objects import Node
from agentkv.lint.rules._markers import markers, target_of
from agentkv.lint.rules.breakpoint_limits import minutes
from agentkv.lint.source import Edit, Slice, Source
from agentkv.lint.template import Document, Request

STEP = 15
"""Blocks between two markers, so that a turn of some blocks more is still found."""
_KEYS = ("cache_control", "cachePoint")
_POINT = '{"cachePoint": {"type": "default"}}'


def limits(document: Document, finding: Finding, source: Source, context: Context) -> Fix | None:
    """Take out the markers that are too many, the one on an empty text; let the earlier one live as
    long as the later one."""
    request = finding.request
    if request is None:
        return None
    python = document.format == "python"
    found = _written(source, python, request)
    if found is None:
        return refused("its markers are not all written out in this call.")
    most = target_of(request, context).max_markers
    if most and len(found) > most:
        # The first covers what all calls share, the last ones the conversation.
        surplus = found[1 : len(found) - most + 1]
        return Fix(
            applicability="safe",
            message=f"Take out {len(surplus)} of {len(found)} cache markers",
            edits=tuple(Edit(_whole(source, node), "") for node in surplus),
            proof=("the text that is sent is the same", "the provider refuses more markers"),
        )
    edits = _longer_first(source, request, found)
    if edits:
        return Fix(
            applicability="safe",
            message="Let the earlier marker live as long as the later one",
            edits=tuple(edits),
            proof=("the text that is sent is the same", "the provider refuses this order"),
        )
    at = next((n for n in found if _covers(n, finding.slice)), None)
    text = at.parent.get("text") if at is not None and at.parent is not None else None
    if at is None or text is None or source.text[text.start + 1 : text.end - 1].strip():
        return None
    return Fix(
        applicability="safe",
        message="Take the marker off the empty text",
        edits=(Edit(_whole(source, at), ""),),
        proof=("the text that is sent is the same", "an empty text cannot be cached"),
    )


def _longer_first(source: Source, request: Request, found: list[Node]) -> list[Edit]:
    """Edits that give each marker the longest lifetime of those behind it."""
    if len(request.marker_ttls) != len(found):
        return []
    edits: list[Edit] = []
    longest, name = 0, ""
    for ttl, node in reversed(list(zip(request.marker_ttls, found, strict=True))):
        length = minutes(ttl)
        if length is None:
            return []
        if length >= longest:
            longest, name = length, ttl
            continue
        if node.kind != "object":
            return []
        given = node.get("ttl")
        if given is None:
            at, text = objects.add(source, node, f'"ttl": "{name}"')
            edits.append(Edit(Slice(at, at), text))
        elif given.kind == "string":
            edits.append(Edit(Slice(given.start, given.end), f'"{name}"'))
        else:
            return []
    return edits


def _written(source: Source, python: bool, request: Request) -> list[Node] | None:
    """The markers of a request in their order; None where one of them is not written out here."""
    roots = objects.whole(source, python)
    places = list(request.markers)
    found = []
    for where in places:
        node = objects.at(roots, where)
        while node is not None and node.key not in _KEYS:
            inner = [c for c in node.children if c.key in _KEYS] if node.kind == "object" else []
            node = inner[0] if inner else node.parent
        if node is None or node.parent is None or node.parent.kind != "object":
            return None
        found.append(node)
    distinct = len({(n.start, n.end) for n in found}) == len(found)
    return found if distinct and len(found) == markers(request) else None


def _whole(source: Source, marker: Node) -> Slice:
    """What to take out: the member, or the block where it is nothing but the marker."""
    block = marker.parent
    assert block is not None
    alone = len(block.children) == 1 and block.parent is not None and block.parent.kind == "list"
    return objects.drop(source, block if alone else marker)


def _covers(node: Node, where: Slice) -> bool:
    start = node.name if node.name >= 0 else node.start
    return start <= where.end and where.start <= node.end


# -- too far apart ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """One block of content; `node` is None where it is not written out."""

    node: Node | None
    message: bool
    """The content of a message that is a plain text."""
    marked: bool


def lookback(document: Document, finding: Finding, source: Source, context: Context) -> Fix | None:
    """A marker between two that are too far apart, where there may be one more."""
    request = finding.request
    if request is None or request.api not in ("anthropic", "bedrock"):
        return None
    provider = target_of(request, context)
    if provider.max_markers and markers(request) >= provider.max_markers:
        return refused(
            f"it has {markers(request)} markers already, and {provider.max_markers} are allowed."
        )
    python, bedrock = document.format == "python", request.api == "bedrock"
    call = around(source, python, request.slice, "messages")
    listed = call.get("messages") if call is not None else None
    if listed is None or listed.kind != "list":
        return None
    blocks = list(_blocks(listed, bedrock))
    place = _between(blocks, provider.lookback, bool(request.markers))
    if place is None or (node := blocks[place].node) is None:
        return refused("no block between the markers can carry one.")
    edits: tuple[Edit, ...]
    if blocks[place].message:
        mark = f"}}, {_POINT}]" if bedrock else f", {MARK}}}]"
        head = '[{"text": ' if bedrock else '[{"type": "text", "text": '
        edits = (
            Edit(Slice(node.start, node.start), head),
            Edit(Slice(node.end, node.end), mark),
        )
    elif bedrock:
        edits = (Edit(Slice(node.end, node.end), f", {_POINT}"),)
    else:
        at, text = objects.add(source, node, MARK)
        edits = (Edit(Slice(at, at), text),)
    return Fix(
        applicability="safe",
        message="Set one more cache marker between the two",
        edits=edits,
        proof=("the text that is sent is the same", "no more markers than are allowed"),
    )


def _blocks(messages: Node, bedrock: bool) -> Iterator[Block]:
    for message in messages.children:
        content = message.get("content") if message.kind == "object" else None
        own = message.get("cache_control") is not None if message.kind == "object" else False
        if content is None or content.kind in ("other", "call"):
            yield Block(None, False, own)
            continue
        if content.kind != "list":
            may = content.kind == "string" and content.end - content.start > 2
            yield Block(content if may else None, True, own)
            continue
        items = content.children
        for n, item in enumerate(items):
            if _point(item):
                continue
            after = items[n + 1] if n + 1 < len(items) else None
            marked = item.kind == "object" and item.get("cache_control") is not None
            marked = marked or (after is not None and _point(after))
            yield Block(item if _carries(item) else None, False, marked)


def _point(node: Node) -> bool:
    return node.kind == "object" and node.get("cachePoint") is not None and len(node.children) == 1


def _carries(node: Node) -> bool:
    """Thinking and empty texts may not be marked."""
    if node.kind != "object":
        return False
    if node.get("thinking") is not None or node.get("reasoningContent") is not None:
        return False
    text = node.get("text")
    return text is None or text.kind != "string" or text.end - text.start > 2


def _between(blocks: list[Block], most: int, marked: bool) -> int | None:
    """Where one more marker stands best: about `STEP` blocks behind the first of two markers that
    are more than `most` apart."""
    last = -1  # a marker of the system prompt or the tools stands in front of all of them
    for n in (*(i for i, b in enumerate(blocks) if b.marked), len(blocks)):
        behind = n - last if n < len(blocks) else n - last - 1
        if behind > most and (marked or last >= 0):
            for place in range(min(last + STEP, n - 1), last, -1):
                if blocks[place].node is not None:
                    return place
            return None
        last = n
    return None
