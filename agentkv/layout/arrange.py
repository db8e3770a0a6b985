"""`arrange()`: the order in which a prompt is sent, and its guards.

A prompt that starts with the tokens of an earlier one is read from memory up to the first
difference. So what never changes goes first, and what always changes goes last: tools, fixed
instructions, documents of the session, history, and a labelled block of what changes by the call
(see `tail.py` for why it is the very end).

Guards: only declared units move (marks, tool lists, `documents=`, and names that `allow` gives to
level `learn`); a text that points is tied to its neighbours, or the move is refused with a sentence
(`points.py`, `shape.py`); nothing is promoted in trust: text of the system message may be moved to
the user's turn, never the other way; the conversation keeps its order, tool calls and their results
included; every unit of the input is in the output once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from agentkv.layout import learn, lines, system, tail, toolset
from agentkv.layout.arrangement import LEVELS, Arrangement, Level, Move, Refusal
from agentkv.layout.memory import Memory
from agentkv.layout.site import Seen
from agentkv.prompt.document import Document
from agentkv.prompt.prompt import SYSTEM_ROLES, Message, Prompt
from agentkv.prompt.segment import Segment, stability_rank


def arrange(
    prompt: Prompt | Iterable[Mapping[str, Any]],
    level: Level | str = "static_first",
    *,
    memory: Memory | None = None,
    session: str | None = None,
    remember: bool = True,
    trailing: bool = True,
    allow: Collection[str] = (),
    keep_tools: bool = False,
    tool_order: str = "name",
    document_order: str = "session",
    drop_lines: lines.Rule | Iterable[lines.Rule] = (),
    move_lines: lines.Rule | Iterable[lines.Rule] = (),
) -> Arrangement:
    """Lay out `prompt` (a `Prompt`, or messages) for reuse.

    `level`: `off` (as given; documents at the end of the system message), `canonical` (tools in
    one JSON form and a stable order, no text moves), `static_first` (tools, fixed text,
    documents, history, and what changes at the end), or `learn` (also what the session has shown
    to change: proposed, and moved where `allow` names it).

    `memory` and `session` together keep the first-seen order of tools and documents, and notice
    drift; `remember=False` only looks. `trailing=False` is for chat templates that refuse a user
    message behind a tool result.

    `keep_tools`: tools that the session's calls had stay in the prompt when this call does not
    give them, and `Arrangement.allowed` names those it gave. Only for a decoder that can mask.
    `tool_order`: new tools by `name`, or as `given`. `document_order`: documents where the
    `session` first had them, or as `given` where their rank matters.

    `drop_lines`, `move_lines`: lines at the very front of the first system message to leave out,
    or to put into the tail: literal beginnings, or compiled patterns that match a whole line.

    Raises ValueError for an unknown level or order and for malformed messages.
    """
    _check("layout", level, LEVELS)
    _check("tool_order", tool_order, ("name", "given"))
    _check("document_order", document_order, ("session", "given"))
    drop, move = lines.check(drop_lines, "drop_lines"), lines.check(move_lines, "move_lines")
    if isinstance(allow, str):
        allow = (allow,)
    if not isinstance(prompt, Prompt):
        prompt = Prompt.build(prompt)
    moves: list[Move] = []
    refused: list[Refusal] = []
    known = memory if session is not None else None
    session = session or ""
    if level != "off":
        prompt = lines.cut(prompt, drop, move, moves)
    seen = known.visit(session, prompt, keep=remember) if known is not None else Seen()
    learned = learn.Learned(prompt)
    if level == "learn":
        learned = learn.apply(prompt, seen, allow, refused)
        prompt = learned.prompt

    tools = toolset.ToolSet(prompt.tools, tuple(prompt.tool_segments))
    if level != "off":
        tools = toolset.settle(
            prompt, known, session, seen, moves, remember, keep=keep_tools, order=tool_order
        )
    if level in ("static_first", "learn"):
        sticky = known if document_order == "session" else None
        documents = _documents(prompt, sticky, session, remember, moves)
        messages = _static_first(prompt, documents, learned.chances, moves, refused, trailing)
    else:
        documents = list(prompt.documents)
        name = _new_name(prompt, "documents")
        block = [tail.document_block(documents, name, "system")] if documents else []
        messages = system.with_blocks(prompt.messages, block, ordered=False)
    talk = sum(m.role not in SYSTEM_ROLES for m in prompt.messages)
    order = (*tools.units, *_order(prompt, messages))
    return Arrangement(
        level=level,
        order=order,
        moves=tuple(moves),
        refused=tuple(refused),
        messages=tuple(m.wire() for m in messages),
        tools=tools.definitions,
        trails=sum(m.role not in SYSTEM_ROLES for m in messages) > talk,
        allowed=tools.allowed,
        proposals=learned.proposals(order),
        warnings=(*seen.warnings, *toolset.warnings(seen, order, keep_tools)),
    )


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")


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
    chances: Mapping[str, float],
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
        fleeting = stability_rank(stability) > system.LASTING
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
        kept, gone = system.settle(message, stay, chances, moves, refused)
        passing.extend(gone)
        if kept.units or not gone:
            out.append(kept)
    out = list(system.with_blocks(out, lasting, ordered=True, own_spacing=True))
    if passing:
        # Python's sort is stable: documents first among equals, then in the author's order.
        passing.sort(key=lambda u: stability_rank(u.stability))
        if not trailing and out[-1].role != "user":
            why = "the chat template takes no user message behind a tool result: the block stands "
            refused.append(Refusal("tail", why + "in the last user message instead."))
        return tail.append(out, passing, trailing=trailing)
    return tuple(out)


def _new_name(prompt: Prompt, name: str) -> str:
    """`name`, unless the prompt has a unit that is called so already."""
    taken = {s.name for s in prompt.message_segments}
    while name in taken:
        name += "'"
    return name


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
