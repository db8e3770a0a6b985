"""A hole where it stands: in which message, what precedes it, and what comes behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.lint.context import Context
from agentkv.lint.names import guess
from agentkv.lint.template import (
    Document,
    Hole,
    Level,
    Part,
    Piece,
    Request,
    Role,
    Template,
    Text,
    Trait,
)

_RANK: dict[Level, int] = {
    "build": 0,
    "deploy": 1,
    "unknown": 2,
    "tenant": 3,
    "user": 4,
    "session": 5,
    "turn": 6,
    "call": 7,
}
WOVEN = 4
"""A name that stands in a prompt so often is what the prompt is about: moving it is no reorder."""
DYNAMIC: frozenset[Level] = frozenset({"tenant", "user", "session", "turn", "call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One hole of one template.

    `level` and `traits` are those of the hole and, for a section, of what is inside it. `behind`:
    static tokens behind it; `before`: in front of it; `total`: all of the template. `history`: a
    conversation stands behind it. `nth`: which of the holes of its name it is. `section` is the section that it stands in. `woven`: the prompt names a
    person all over, so that it is about that person.
    """

    template: Template
    part: int
    piece: int
    hole: Hole
    level: Level
    traits: frozenset[Trait]
    behind: int
    before: int
    total: int
    history: bool
    nth: int
    woven: bool = False
    section: Hole | None = None
    request: Request | None = None
    after: tuple[Piece, ...] = ()
    """Pieces behind it, in rendering order."""
    late: int = 0
    """Static tokens behind it that are whole messages of their own."""

    @property
    def role(self) -> Role:
        return self.template.parts[self.part].role

    @property
    def placeholder(self) -> bool:
        return self.template.parts[self.part].placeholder

    @property
    def dynamic(self) -> bool:
        return self.level in DYNAMIC

    @property
    def hourly(self) -> bool:
        return "hour" in self.traits or "hours only" in self.hole.why

    @property
    def model(self) -> str | None:
        return self.request.model if self.request is not None else None

    @property
    def at(self) -> tuple[int, int]:
        return self.part, self.piece

    @property
    def slot(self) -> str:
        """Stable over edits elsewhere: the template's name, the hole's, and which of them it is."""
        return f"{self.template.name}/{self.hole.name or self.hole.expr[:40]}#{self.nth}"


_last: tuple[Document, Context, tuple[Spot, ...]] | None = None


def spots(document: Document, context: Context) -> tuple[Spot, ...]:
    """Every hole of a document, sections before what is inside them. Kept for the last document, as
    each rule asks for them."""
    global _last
    last = _last
    if last is not None and last[0] is document and last[1] is context:
        return last[2]
    found = tuple(s for t in document.templates for s in _of(t, document, context))
    _last = (document, context, found)
    return found


def _of(template: Template, document: Document, context: Context) -> Iterator[Spot]:
    pieces = list(template.pieces())
    tokens = [context.tokens(p) for _, _, p in pieces]
    total = sum(tokens)
    request = request_of(template, document)
    names = Counter(h.name for _, _, p in pieces for h in _deep(p))
    people = {
        h.name for _, _, p in pieces for h in _deep(p) if "user_data" in h.traits and not h.known
    }
    woven = any(names[name] >= WOVEN for name in people)
    seen: Counter[str] = Counter()
    before = 0
    late = _late(template)
    for n, (i, j, piece) in enumerate(pieces):
        if isinstance(piece, Hole):
            # Fixed messages that stand behind a conversation are a matter of their own (KV209, KV212).
            apart = sum(
                t
                for (a, _, _), t in zip(pieces[n + 1 :], tokens[n + 1 :], strict=True)
                if a in late and a > i
            )
            behind = total - before - tokens[n] - apart
            history = _history_behind(template, i, j)
            after = tuple(p for _, _, p in pieces[n + 1 :])
            for hole, section, inside in _nested(piece, context):
                seen[hole.name] += 1
                level, traits = effective(hole, context)
                yield Spot(
                    template=template,
                    part=i,
                    piece=j,
                    hole=hole,
                    level=level,
                    traits=traits,
                    behind=behind + inside,
                    before=before,
                    total=total,
                    history=history,
                    nth=seen[hole.name],
                    woven=woven,
                    section=section,
                    request=request,
                    after=after,
                    late=apart,
                )
        before += tokens[n]


def _deep(piece: Piece) -> Iterator[Hole]:
    if isinstance(piece, Hole):
        yield piece
        for inner in piece.inner:
            yield from _deep(inner)


def _nested(
    hole: Hole, context: Context, section: Hole | None = None, behind: int = 0
) -> Iterator[tuple[Hole, Hole | None, int]]:
    """The hole and those inside it, each with its section and the static tokens behind it there."""
    yield hole, section, behind
    loop = "loop" in hole.traits and context.level(hole) not in ("build", "deploy")
    sizes = [0 if loop else context.tokens(p) for p in hole.inner]
    for n, inner in enumerate(hole.inner):
        if isinstance(inner, Hole):
            yield from _nested(inner, context, hole, behind + sum(sizes[n + 1 :]))


def effective(hole: Hole, context: Context) -> tuple[Level, frozenset[Trait]]:
    """Level and traits of a hole with all that is inside it."""
    level, traits = context.level(hole), hole.traits
    named = guess(hole.name)[1]
    if "memory" in named:  # memories are looked up as documents are
        traits = (traits - {"context"}) | {"memory"}
    if "random_id" in named and level == "call":  # a hash of the time, say
        traits = (traits - {"clock"}) | {"random_id"}
    for inner in hole.inner:
        if isinstance(inner, Hole):
            one, more = effective(inner, context)
            traits |= more
            if _RANK[one] > _RANK[level]:
                level = one
    return level, traits


def _history_behind(template: Template, part: int, piece: int) -> bool:
    """Whether a conversation follows that is lost when this changes.

    A system message on its own always has one behind it. What stands in a user's message is sent
    again as it was when more messages are appended, so only a run of messages that comes in behind
    it counts there.
    """
    if template.followed and template.parts[part].role in ("system", "unknown"):
        return True
    for i, one in enumerate(template.parts):
        if i > part and (one.placeholder or _says_history(one, -1)):
            return True
        if i == part and _says_history(one, piece):
            return True
    return all(p.role == "system" for p in template.parts)


def _says_history(part: Part, after: int) -> bool:
    return any(
        isinstance(p, Hole) and "history" in p.traits
        for j, p in enumerate(part.pieces)
        if j > after
    )


def _late(template: Template) -> set[int]:
    """Whole fixed messages behind a run of messages from outside."""
    first = next(
        (i for i, p in enumerate(template.parts) if p.placeholder and not _examples(p)), None
    )
    if first is None:
        first = next(
            (i for i, p in enumerate(template.parts) if p.role in ("user", "assistant", "tool")),
            None,
        )
        if first is None:
            return set()
        return {
            i for i, p in enumerate(template.parts) if i > first and p.static and p.role == "system"
        }
    return {i for i, p in enumerate(template.parts) if i > first and p.static}


def _examples(part: Part) -> bool:
    """Whether a run of messages is one of examples, and no conversation."""
    return any(isinstance(p, Hole) and "examples" in p.traits for p in part.pieces)


late_messages = _late


def request_of(template: Template, document: Document) -> Request | None:
    """The request that sends a template, if the document shows one."""
    for request in document.requests:
        if request.template is template:
            return request
    for request in document.requests:
        one = request.template
        if one is not None and one.slice == template.slice and one.name == template.name:
            return request
    return None


def text_behind(spot: Spot) -> str:
    """Static text behind a spot, sections included."""
    return "\n".join(_texts(spot.after))


def _texts(pieces: tuple[Piece, ...]) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, Text):
            yield piece.value
        else:
            yield from _texts(piece.inner)


def static_texts(template: Template, context: Context) -> Iterator[tuple[int, int, Text]]:
    """Every fixed text with its part and piece, those of constants and sections included."""
    for i, j, piece in template.pieces():
        for text in _fixed(piece, context):
            yield i, j, text


def _fixed(piece: Piece, context: Context) -> Iterator[Text]:
    if isinstance(piece, Text):
        yield piece
    elif not ("loop" in piece.traits and context.level(piece) not in ("build", "deploy")):
        for inner in piece.inner:
            yield from _fixed(inner, context)
