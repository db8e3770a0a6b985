"""Cache markers and cache keys, in requests that are written out (JSON, or dict displays in Python)."""

from __future__ import annotations

import re

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding, Fix
from agentkv.lint.fixes import objects
from agentkv.lint.fixes.objects import Node
from agentkv.lint.source import Edit, Slice, Source
from agentkv.lint.template import Document, Hole, Template

MARK = '"cache_control": {"type": "ephemeral"}'
_UUID = re.compile(
    r"""^["']?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}["']?$""",
    re.IGNORECASE,
)
_UUID_CALL = re.compile(r"^(?:str\()?(?:uuid\.)?uuid[14]\(\)\)?(?:\.hex)?$")


def missing(document: Document, finding: Finding, source: Source, context: Context) -> Fix | None:
    """Mark the last block of the system text, where all of it stays the same."""
    request = finding.request
    if request is None or request.api not in ("anthropic", "bedrock") or request.template is None:
        return None
    if not _lasting(request.template, context):
        return refused(
            "its system text changes: what stays the same must stand in a block of its own first."
        )
    python = document.format == "python"
    call = around(source, python, request.slice, "system")
    if call is None:
        return None
    system = call.get("system")
    if system is None:
        return None
    bedrock = request.api == "bedrock"
    edits = _mark_system(source, system, bedrock, python)
    if edits is None:
        return None
    return Fix(
        applicability="safe",
        message="Mark the last block that stays the same",
        edits=edits,
        proof=("the text that is sent is the same",),
    )


def _mark_system(
    source: Source, system: Node, bedrock: bool, python: bool
) -> tuple[Edit, ...] | None:
    if system.kind == "list" and system.children:
        last = system.children[-1]
        if bedrock:
            put, text = objects.add(source, system, '{"cachePoint": {"type": "default"}}')
            return (Edit(Slice(put, put), text),)
        if last.kind != "object" or last.get("cache_control") is not None:
            return None
        put, text = objects.add(source, last, MARK)
        return (Edit(Slice(put, put), text),)
    if bedrock or not (system.kind == "string" or python) or system.kind in ("list", "object"):
        return None
    return (
        Edit(Slice(system.start, system.start), '[{"type": "text", "text": '),
        Edit(Slice(system.end, system.end), f", {MARK}}}]"),
    )


def _lasting(template: Template, context: Context) -> bool:
    system = [p for p in template.parts if p.role == "system"]
    return bool(system) and all(
        context.level(h) in ("build", "deploy")
        for p in system
        for h in p.pieces
        if isinstance(h, Hole)
    )


def after_dynamic(
    document: Document, finding: Finding, source: Source, context: Context
) -> Fix | None:
    """Move the marker to the last block in front of it that stays the same."""
    python = document.format == "python"
    found = objects.at(objects.whole(source, python), finding.slice)
    while found is not None and found.key != "cache_control":
        inner = found.get("cache_control") if found.kind == "object" else None
        if inner is not None:
            found = inner
            break
        found = found.parent
    if found is None or found.parent is None or found.parent.parent is None:
        return None
    block, row = found.parent, found.parent.parent
    if row.kind != "list" or block.kind != "object":
        return refused(
            "the marked block is the only one: split what stays the same from what changes first."
        )
    for other in reversed(row.children[: row.children.index(block)]):
        if other.kind != "object" or other.get("cache_control") is not None:
            break
        if _changes(document, other, context):
            continue
        if other.get("text") is None and other.get("content") is None and other.get("name") is None:
            break
        if other.get("content") is not None and other.get("text") is None:
            break  # a message: its content would have to become blocks
        written = source.text[found.name : found.end]
        put, text = objects.add(source, other, written)
        return Fix(
            applicability="safe",
            message="Move the marker to the last block that stays the same",
            edits=(Edit(Slice(put, put), text), Edit(objects.drop(source, found), "")),
            proof=("the text that is sent is the same", "as many markers as before"),
        )
    return refused(
        "no block in front of the marker stays the same: split what does from what changes first."
    )


def _changes(document: Document, node: Node, context: Context) -> bool:
    for template in document.templates:
        for _, _, hole in template.holes():
            if (
                hole.slice is not None
                and node.start <= hole.slice.start
                and hole.slice.end <= node.end
                and context.level(hole) not in ("build", "deploy")
            ):
                return True
    return False


def key(document: Document, finding: Finding, source: Source, context: Context) -> Fix | None:
    """Drop a cache key that is a new uuid in each call."""
    python = document.format == "python"
    found = objects.at(objects.whole(source, python), finding.slice)
    names = {"prompt_cache_key", "cache_salt", "cache_key", "extra_key"}
    while found is not None and found.key not in names:
        inner = (
            next((c for c in found.children if c.key in names), None)
            if found.kind in ("object", "call")
            else None
        )
        found = inner or found.parent
    if found is None or found.parent is None:
        return None
    value = source.text[found.start : found.end].strip()
    if not (_UUID.match(value) or _UUID_CALL.match(value.replace(" ", ""))):
        return refused(
            "where the key comes from is not seen here, so it is not known what it keeps apart."
        )
    return Fix(
        applicability="safe",
        message=f"Drop `{found.key}`: nothing else has this key",
        edits=(Edit(objects.drop(source, found), ""),),
        proof=("no other call could have had this key",),
    )


def around(source: Source, python: bool, where: Slice, key: str) -> Node | None:
    """The object or call that a request is, by one of its members."""
    found: Node | None = None
    for root in objects.whole(source, python):
        for node in root.walk():
            if node.kind in ("object", "call") and node.get(key) is not None:
                inside = where.start <= node.start and node.end <= where.end
                around = node.start <= where.start and where.end <= node.end
                if (inside or around) and (
                    found is None or node.end - node.start < found.end - found.start
                ):
                    found = node
    return found


def refused(why: str) -> Fix:
    return Fix(applicability="display", message="Not fixed", refused=why[:1].upper() + why[1:])
