"""`arrange()`: the order in which a prompt is sent, and its guards.

A prompt that starts with the tokens of an earlier one is read from memory up to the first
difference. So what never changes goes first, and what always changes goes last: tools, fixed
instructions, documents of the session, history, and a labelled block of what changes by the call
(see `tail.py` for why it is the very end).

Guards: only declared units move (marks, tool lists, `documents=`); a text that points is tied to
its neighbours, or the move is refused with a sentence (`points.py`); nothing is promoted in trust:
text of the system message may be moved to the user's turn, never the other way; the conversation
keeps its order, tool calls and their results included; every unit of the input is in the output
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from agentkv.layout import tail
from agentkv.layout.arrangement import LEVELS, Arrangement, Level, Move, Refusal
from agentkv.layout.memory import Memory
from agentkv.layout.points import tie
from agentkv.prompt.canonical import canonical_tool, tool_name
from agentkv.prompt.document import Document
from agentkv.prompt.prompt import SYSTEM_ROLES, Message, Prompt
from agentkv.prompt.segment import Segment, kind_rank, stability_rank

_LASTING = stability_rank("session")
_FIXED = (stability_rank("build"), kind_rank("instructions"))
_ENDS = ".!?:…。！？)]}>"


def arrange(
    prompt: Prompt | Iterable[Mapping[str, Any]],
    level: Level | str = "static_first",
    *,
    memory: Memory | None = None,
    session: str | None = None,
    remember: bool = True,
    trailing: bool = True,
) -> Arrangement:
    """Lay out `prompt` (a `Prompt`, or messages) for reuse.

    `level`: `off` (as given; documents at the end of the system message), `canonical` (tools in
    one JSON form and a stable order, no text moves), or `static_first` (tools, fixed text,
    documents, history, and what changes at the end). `memory` and `session` together keep the
    first-seen order of tools and documents; `remember=False` only looks. `trailing=False` is for
    chat templates that refuse a user message behind a tool result.

    Raises ValueError for an unknown level or malformed messages.
    """
    if level not in LEVELS:
        raise ValueError(f"layout must be one of {', '.join(LEVELS)}, got {level!r}.")
    if not isinstance(prompt, Prompt):
        prompt = Prompt.build(prompt)
    moves: list[Move] = []
    refused: list[Refusal] = []
    known = memory if session is not None else None

    tools, tool_order = _tools(prompt, level, known, session or "", remember, moves)
    if level == "static_first":
        documents = _documents(prompt, known, session or "", remember, moves)
        messages = _static_first(prompt, documents, moves, refused, trailing)
    else:
        documents = list(prompt.documents)
        name = _new_name(prompt, "documents")
        block = [tail.document_block(documents, name, "system")] if documents else []
        messages = _with_system(prompt.messages, block, ordered=False)
    talk = sum(m.role not in SYSTEM_ROLES for m in prompt.messages)
    return Arrangement(
        level=level,
        order=(*tool_order, *_order(prompt, messages)),
        moves=tuple(moves),
        refused=tuple(refused),
        messages=tuple(m.wire() for m in messages),
        tools=tools,
        trails=sum(m.role not in SYSTEM_ROLES for m in messages) > talk,
    )


def _tools(
    prompt: Prompt,
    level: str,
    memory: Memory | None,
    session: str,
    remember: bool,
    moves: list[Move],
) -> tuple[tuple[Mapping[str, Any], ...], list[Segment]]:
    """Tools as they are sent, and their units in that order."""
    if level == "off":
        return prompt.tools, list(prompt.tool_segments)
    names = [tool_name(t) for t in prompt.tools]
    if memory is not None:
        order = memory.tools(session, names, keep=remember)
    else:
        order = sorted(range(len(names)), key=lambda i: names[i])
    if order != list(range(len(names))):
        moves.append(Move("tools", "stable_order"))
    units = prompt.tool_segments
    return tuple(canonical_tool(prompt.tools[i]) for i in order), [units[i] for i in order]


def _documents(
    prompt: Prompt, memory: Memory | None, session: str, remember: bool, moves: list[Move]
) -> list[Document]:
    """Documents in the session's order, slow ones first."""
    given = list(prompt.documents)
    order = list(range(len(given)))
    if memory is not None:
        order = memory.documents(session, [d.id for d in given], keep=remember)
    order.sort(key=lambda i: stability_rank(given[i].stability))
    if order != list(range(len(given))):
        moves.append(Move("documents", "stable_order"))
    return [given[i] for i in order]


def _static_first(
    prompt: Prompt,
    documents: Sequence[Document],
    moves: list[Move],
    refused: list[Refusal],
    trailing: bool,
) -> tuple[Message, ...]:
    messages = list(prompt.messages)
    stay = tail.refusal(messages)
    lasting: list[Segment] = []
    passing: list[Segment] = []
    for stability, run in groupby(documents, key=lambda d: d.stability):
        first = not lasting and not passing
        name = _new_name(prompt, "documents" if first else f"documents.{stability}")
        fleeting = stability_rank(stability) > _LASTING
        if fleeting and stay is None:
            passing.append(tail.document_block(list(run), name, "user"))
            moves.append(Move(name, "tail"))
        else:
            if fleeting:
                refused.append(Refusal(name, stay or ""))
            lasting.append(tail.document_block(list(run), name, "system"))

    out: list[Message] = []
    for i, message in enumerate(messages):
        if message.role not in SYSTEM_ROLES:
            out.extend(messages[i:])
            break
        kept, gone = _system(message, stay, moves, refused)
        passing.extend(gone)
        if kept.units or not gone:
            out.append(kept)
    out = list(_with_system(out, lasting, ordered=True, spaced=True))
    if passing:
        # Python's sort is stable: documents first among equals, then in the author's order.
        passing.sort(key=lambda u: stability_rank(u.stability))
        if not trailing and out[-1].role != "user":
            why = "the chat template takes no user message behind a tool result: the block stands "
            refused.append(Refusal("tail", why + "in the last user message instead."))
        return tail.append(out, passing, trailing=trailing)
    return tuple(out)


def _system(
    message: Message, stay: str | None, moves: list[Move], refused: list[Refusal]
) -> tuple[Message, list[Segment]]:
    """A system message with its declared units in order, and the blocks that leave it."""
    units = message.units
    runs: list[list[Segment]] = [[]]
    gone: list[Segment] = []
    for i, unit in enumerate(units):
        if not unit.declared:
            runs[-1].append(unit)
            continue
        leaves = stability_rank(unit.stability) > _LASTING
        sinks = any(_rank(w) < _rank(unit) for w in units[i + 1 :])
        reason = tie(units, i) if leaves or sinks else None
        if leaves and reason is None and stay is None:
            gone.append(tail.context_block(unit))
            moves.append(Move(unit.name, "tail"))
            continue
        if reason is not None:
            refused.append(Refusal(unit.name, reason))
            # What is tied is a wall: the units before and behind it are sorted apart.
            runs.extend([[unit], []])
            continue
        if leaves:
            refused.append(Refusal(unit.name, stay or ""))
        runs[-1].append(unit)
    kept: list[Segment] = []
    for run in runs:
        for i, unit in enumerate(run):
            if any(_rank(w) < _rank(unit) for w in run[i + 1 :]):
                moves.append(Move(unit.name, "behind_static"))
        kept.extend(sorted(run, key=_rank))
    return replace(message, units=_spaced(tuple(kept))), gone


def _new_name(prompt: Prompt, name: str) -> str:
    """`name`, unless the prompt has a unit that is called so already."""
    taken = {s.name for s in prompt.message_segments}
    while name in taken:
        name += "'"
    return name


def _rank(unit: Segment) -> tuple[int, int]:
    """Undeclared text never moves, so nothing may count as slower than it."""
    return max(unit.rank, _FIXED) if unit.declared else _FIXED


def _with_system(
    messages: Sequence[Message],
    blocks: Sequence[Segment],
    *,
    ordered: bool,
    spaced: bool = False,
) -> tuple[Message, ...]:
    """`messages` with `blocks` in the last leading system message, which is made if there is none.

    `ordered` puts a block ahead of faster text, where that text is not tied to what precedes it.
    """
    if not blocks:
        return tuple(messages)
    lead = 0
    while lead < len(messages) and messages[lead].role in SYSTEM_ROLES:
        lead += 1
    if not lead:
        return (Message("system", {}, _spaced(tuple(blocks))), *messages)
    target = messages[lead - 1]
    units = list(target.units)
    for block in blocks:
        at = len(units)
        while ordered and at and units[at - 1].declared and units[at - 1].rank > block.rank:
            at -= 1
        if at < len(units) and tie(units, at) is not None:
            at = len(units)
        if at == len(units) and units and not spaced:
            block = replace(block, content="\n\n" + block.content)
        units.insert(at, block)
    joined = _spaced(tuple(units)) if spaced else tuple(units)
    return (*messages[: lead - 1], replace(target, units=joined), *messages[lead:])


def _spaced(units: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """A blank line at each joint where two sentences would touch without a space.

    The units' own text is kept; a block of ours always stands apart.
    """
    out: list[Segment] = []
    for unit in units:
        left = out[-1].content if out else ""
        text = unit.content
        if left and text and not left[-1].isspace() and not text[0].isspace():
            ours = unit.message < 0 or out[-1].message < 0
            if ours or left[-1] in _ENDS or (left[-1].isalnum() and text[0].isalnum()):
                unit = replace(unit, content="\n\n" + text)
        out.append(unit)
    return tuple(out)


def _order(prompt: Prompt, messages: Sequence[Message]) -> list[Segment]:
    """The input's own units in the order of `messages`; a document block stands for its items."""
    documents = {s.items[0]: s for s in prompt.document_segments}
    units = {s.name: s for s in prompt.message_segments}
    out: list[Segment] = []
    for message in messages:
        for unit in message.units:
            if unit.message < 0:
                out.extend(documents[item] for item in unit.items)
            else:
                out.append(units[unit.name])
    return out
