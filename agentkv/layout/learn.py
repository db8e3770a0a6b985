"""Level `learn`: what a session has shown, as proposals, and as moves of what is allowed to move.

Three kinds of input may turn out to change from call to call though nobody said so: a marked text
whose mark is wrong, lines of unmarked system text, and the set of documents. Each is proposed by
name. Where the caller allows the name, the marked text is treated as one that changes by the call,
the lines become a unit of their own (cut at line ends only), and the documents that come and go
are taken for those of a turn. All guards hold for them as for what was declared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentkv.layout.arrangement import Proposal, Refusal
from agentkv.layout.churn import MAX_LINES, Churn
from agentkv.layout.points import closing
from agentkv.layout.site import Seen
from agentkv.prompt.document import Document
from agentkv.prompt.prompt import SYSTEM_ROLES, Message, Prompt
from agentkv.prompt.segment import Segment, stability_rank

_LASTING = stability_rank("session")
DOCUMENTS = "documents"


@dataclass(slots=True)
class Learned:
    """A prompt with what was learned in it.

    `chances` are measured chances of units that were allowed to move and stay in the system
    message. `found` holds (name, where it would go, its record, tokens behind the change within
    it) of what was not allowed.
    """

    prompt: Prompt
    chances: dict[str, float] = field(default_factory=dict)
    found: list[tuple[str, str, Churn, int]] = field(default_factory=list)

    def proposals(self, order: Sequence[Segment]) -> tuple[Proposal, ...]:
        """What was found, with the tokens that each change costs now."""
        out = []
        for name, to, churn, inside in self.found:
            place = next((i for i, s in enumerate(order) if _is(s, name)), None)
            if place is None:
                continue
            behind = inside + sum(tokens(s) for s in order[place + 1 :])
            saves = round(min(churn.share, 1.0) * behind)
            out.append(Proposal(name, to, saves, churn.changed, churn.calls))
        return tuple(out)


def _is(unit: Segment, name: str) -> bool:
    return unit.kind == "documents" and unit.message < 0 if name == DOCUMENTS else unit.name == name


def tokens(unit: Segment) -> int:
    """Tokens of a text, estimated at four bytes each: only ratios are taken from it."""
    text = unit.content
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return max(1, size // 4) if text else 0


def apply(prompt: Prompt, seen: Seen, allow: Collection[str], refused: list[Refusal]) -> Learned:
    """`prompt` with what `seen` says about it, as far as `allow` names it."""
    learned = Learned(prompt)
    messages: list[Message] = []
    for i, message in enumerate(prompt.messages):
        if message.role not in SYSTEM_ROLES:
            messages.extend(prompt.messages[i:])
            break
        units = [u for unit in message.units for u in _unit(unit, seen, allow, learned, refused)]
        messages.append(replace(message, units=tuple(units)))
    documents = _documents(prompt.documents, seen, allow, learned)
    learned.prompt = replace(prompt, messages=tuple(messages), documents=documents)
    return learned


def _unit(
    unit: Segment, seen: Seen, allow: Collection[str], learned: Learned, refused: list[Refusal]
) -> Iterator[Segment]:
    churn = seen.units.get(unit.name)
    fast = unit.declared and stability_rank(unit.stability) > _LASTING
    if churn is None or not churn.changed or fast:
        yield unit
        return
    to = "tail" if churn.leaves or not unit.declared else "behind_static"
    if unit.name not in allow:
        if unit.declared or churn.leaves:
            learned.found.append((unit.name, to, churn, _inside(unit, churn)))
        yield unit
    elif not unit.declared:
        yield from _lines(unit, churn, refused)
    elif to == "tail":
        yield replace(unit, stability="call")
    else:
        learned.chances[unit.name] = churn.chance
        yield unit


def _inside(unit: Segment, churn: Churn) -> int:
    """Tokens of a unit's own lines behind the first one that changed: unmarked text has such."""
    if unit.declared:
        return 0
    behind = "".join(unit.content.splitlines(keepends=True)[churn.line + 1 :])
    return tokens(replace(unit, content=behind))


def _lines(unit: Segment, churn: Churn, refused: list[Refusal]) -> Iterator[Segment]:
    """An unmarked text in pieces: runs of lines that every call had, and runs that change."""
    lines = unit.content.splitlines(keepends=True)
    if churn.stable is None or len(lines) > MAX_LINES:
        refused.append(Refusal(unit.name, f"it has more than {MAX_LINES} lines to follow."))
        yield unit
        return
    changes = [bool(x.strip()) and hash(x.splitlines()[0]) not in churn.stable for x in lines]
    for i, line in enumerate(lines):
        rule = closing(line) if changes[i] else None
        if rule:
            changes[i] = False
            refused.append(Refusal(unit.name, f"{rule!r} is a rule, which keeps its authority."))
    if all(c for c, x in zip(changes, lines, strict=True) if x.strip()):
        refused.append(Refusal(unit.name, "no line of it was the same in every call."))
        yield unit
        return
    start, pieces, moved = 0, 0, 0
    for end in range(1, len(lines) + 1):
        if end < len(lines) and changes[end] == changes[start]:
            continue
        text = "".join(lines[start:end])
        if changes[start]:
            moved += 1
            name = f"{unit.name}.changing" + (f"#{moved}" if moved > 1 else "")
            yield replace(
                unit,
                name=name,
                kind="context",
                stability="call",
                declared=True,
                content=text,
                content_hash="",
                joints=(),
            )
        else:
            pieces += 1
            name = unit.name + (f"~{pieces}" if pieces > 1 else "")
            yield replace(unit, name=name, content=text, content_hash="", joints=())
        start = end


def _documents(
    documents: tuple[Document, ...], seen: Seen, allow: Collection[str], learned: Learned
) -> tuple[Document, ...]:
    churn, always = seen.documents.churn, seen.documents.always
    if not churn.leaves or always is None:
        return documents
    passing = [
        stability_rank(d.stability) <= _LASTING and (d.id, d.content_hash) not in always
        for d in documents
    ]
    if not any(passing):
        return documents
    if DOCUMENTS not in allow:
        learned.found.append((DOCUMENTS, "tail", churn, 0))
        return documents
    return tuple(
        replace(d, stability="turn") if p else d for d, p in zip(documents, passing, strict=True)
    )
