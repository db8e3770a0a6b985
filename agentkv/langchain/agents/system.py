"""A system message in declared pieces, and (for models that lay out nothing) their arrangement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from agentkv.langchain.agents.lines import Piece
from agentkv.layout import arrange
from agentkv.prompt.marks import KEY, mark_of, volatile
from agentkv.report.parts import LayoutUse

Block = dict[str, Any]


def declared(
    system: SystemMessage,
    split: Callable[[Sequence[str]], list[Piece]],
    keep: Callable[[str], bool],
) -> tuple[SystemMessage, list[tuple[str, str]]]:
    """`system` with what changes in it marked `volatile`, and the pieces that were left by `keep`.

    Texts that carry a mark already are left to their author. The text that stays is written in one
    way whether or not something stood around it: the blank lines at its end are dropped.
    """
    blocks = _blocks(system)
    plain = [i for i, b in enumerate(blocks) if _is_text(b) and mark_of(b) is None]
    pieces = split([blocks[i]["text"] for i in plain])
    left: list[tuple[str, str]] = []
    out: list[Block] = []
    for i, block in enumerate(blocks):
        if i not in plain:
            out.append(block)
            continue
        own = [p for p in pieces if plain[p.block] == i]
        rest = {k: v for k, v in block.items() if k not in ("type", "text", "id", "index")}
        texts: list[Block] = []
        for piece in own:
            name = f"system line {piece.line}"
            stays = not piece.changes or keep(piece.text)
            if piece.changes and stays:
                left.append((name, "keep= says that it stays."))
            if not stays:
                texts.append(volatile(piece.text.strip("\n") + "\n", name))
            elif texts and mark_of(texts[-1]) is None:
                texts[-1]["text"] += piece.text
            else:
                # A provider's marker (cache_control) stays on what stays.
                texts.append({"type": "text", "text": piece.text, **rest})
        out += texts
    stay = [b for b in out if _is_text(b) and mark_of(b) is None]
    if stay:
        stay[-1]["text"] = stay[-1]["text"].rstrip("\n")
    out = [b for b in out if not _is_text(b) or b["text"]]
    return _with(system, out), left


def rearranged(
    system: SystemMessage | None, messages: Sequence[BaseMessage], *, trailing: bool
) -> tuple[SystemMessage | None, list[BaseMessage], LayoutUse]:
    """System text that stays, and messages with what changes at their end, for any chat model.

    The order and its guards are `arrange()`'s. Marks are taken off: other providers refuse keys
    that they do not know.
    """
    given = list(messages)
    if system is None:
        return None, given, LayoutUse("static_first")
    blocks = _blocks(system)
    if not all(_is_text(b) for b in blocks):
        why = "the system message holds something that is not text."
        return system, given, LayoutUse("static_first", refused=(("system", why),))
    named: dict[str, Block] = {}
    parts = [_marked(block, f"system[{i}]", named) for i, block in enumerate(blocks)]
    roles: list[Block] = [{"role": _role(m), "content": ""} for m in given]
    laid = arrange([{"role": "system", "content": parts}, *roles], trailing=trailing)
    wire = list(laid.messages)
    kept: list[Block] = []
    if wire and wire[0]["role"] == "system":
        kept = _parts(wire.pop(0))
    fixed = [_unmarked(part, named) for part in kept]
    layout = LayoutUse(
        "static_first",
        moved=tuple((m.name, m.to) for m in laid.moves),
        refused=tuple((r.name, r.reason) for r in laid.refused),
    )
    tail = "".join(str(part["text"]) for message in wire for part in _parts(message))
    out = _append(given, tail, trailing=trailing) if tail else given
    if not fixed:
        return None, out, layout
    plain = all(set(b) <= {"type", "text"} for b in fixed)
    content: Any = "".join(b["text"] for b in fixed) if plain else fixed
    return system.model_copy(update={"content": content}), out, layout


def _append(messages: Sequence[BaseMessage], tail: str, *, trailing: bool) -> list[BaseMessage]:
    """`messages` with the block behind them: see `agentkv.layout.tail` for why it is there."""
    at = len(messages) - 1
    if not isinstance(messages[at], HumanMessage) and trailing:
        return [*messages, HumanMessage(tail.lstrip())]
    while not isinstance(messages[at], HumanMessage):
        at -= 1
    user = messages[at]
    content: Any = user.content
    text = tail if tail[:1].isspace() else " \n\n" + tail
    grown = (
        content + text if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    )
    return [*messages[:at], user.model_copy(update={"content": grown}), *messages[at + 1 :]]


def _marked(block: Block, name: str, named: dict[str, Block]) -> Block:
    mark = mark_of(block)
    if mark is None:
        mark = {"name": name, "kind": "instructions", "stability": "build"}
    unique = mark["name"]
    while unique in named:
        unique += "'"
    named[unique] = {
        k: v for k, v in block.items() if k not in ("type", "text", "id", "index", KEY, "extras")
    }
    return {"type": "text", "text": block["text"], KEY: {**mark, "name": unique}}


def _unmarked(part: Block, named: Mapping[str, Block]) -> Block:
    return {
        "type": "text",
        "text": part["text"],
        **named.get(str((part.get(KEY) or {}).get("name")), {}),
    }


def _parts(message: Mapping[str, Any]) -> list[Block]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content or ())


def _blocks(system: SystemMessage) -> list[Block]:
    content = system.content
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        {"type": "text", "text": block} if isinstance(block, str) else dict(block)
        for block in content
    ]


def _with(system: SystemMessage, blocks: Sequence[Block]) -> SystemMessage:
    if all(set(b) <= {"type", "text"} for b in blocks) and isinstance(system.content, str):
        return system.model_copy(update={"content": "".join(b["text"] for b in blocks)})
    return system.model_copy(update={"content": list(blocks)})


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type", "text") == "text" and isinstance(block.get("text"), str)


def _role(message: BaseMessage) -> str:
    if isinstance(message, AIMessage):
        return "assistant"
    if isinstance(message, ToolMessage):
        return "tool"
    return "system" if isinstance(message, SystemMessage) else "user"
