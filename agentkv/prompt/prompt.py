"""A prompt as a list of segments, made from OpenAI-style messages, tools and documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from agentkv.prompt.document import Document, as_documents
from agentkv.prompt.marks import KEY, Mark, mark_of
from agentkv.prompt.segment import Segment, content_hash
from agentkv.prompt.tools import Tool, read_tool

SYSTEM_ROLES = ("system", "developer")
_BODY = ("role", "content")


@dataclass(frozen=True)
class Message:
    """One message: its role, what goes with it (tool calls, ids, a name), and its units in order.

    `null` where the content was null, and stays null.
    """

    role: str
    extras: Mapping[str, Any]
    units: tuple[Segment, ...]
    null: bool = False

    def wire(self) -> dict[str, Any]:
        """The message as a dict: plain text stays a string, marks stay on their parts."""
        if len(self.units) == 1 and not self.units[0].declared and self.units[0].part is None:
            return {"role": self.role, "content": self.units[0].content, **self.extras}
        out: dict[str, Any] = {"role": self.role}
        units = _merged(u for u in self.units if u.content or u.part is not None)
        if not units:
            out["content"] = None if self.null else ""
        elif len(units) == 1 and not units[0].declared and units[0].part is None:
            out["content"] = units[0].content
        else:
            out["content"] = [_part(u) for u in units]
        out.update(self.extras)
        return out


@dataclass(frozen=True)
class Prompt:
    """Messages, tools and documents of one call, with names that are unique within it."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Document, ...] = ()

    @classmethod
    def build(
        cls,
        messages: Iterable[Mapping[str, Any]],
        tools: Iterable[Mapping[str, Any]] | None = None,
        documents: Iterable[Any] | None = None,
    ) -> Prompt:
        """A prompt from OpenAI-style message dicts, tool definitions and documents.

        Raises ValueError for a message without a role or with content that is not text, parts or
        null.
        """
        names: dict[str, int] = {}
        given = list(messages)
        last_user = max((i for i, m in enumerate(given) if m.get("role") == "user"), default=-1)
        out = tuple(_message(i, m, names, question=i == last_user) for i, m in enumerate(given))
        return cls(out, tuple(tools or ()), as_documents(documents))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every unit: tools first, then the messages in order, then the documents."""
        return (*self.tool_segments, *self.message_segments, *self.document_segments)

    @cached_property
    def read_tools(self) -> tuple[Tool, ...]:
        """The tools in their canonical form, in the order given."""
        return tuple(map(read_tool, self.tools))

    @cached_property
    def tool_segments(self) -> tuple[Segment, ...]:
        return tuple(map(tool_segment, self.read_tools))

    @cached_property
    def message_segments(self) -> tuple[Segment, ...]:
        return tuple(unit for message in self.messages for unit in message.units)

    @cached_property
    def document_segments(self) -> tuple[Segment, ...]:
        return tuple(
            Segment(
                name=f"documents.{d.id}",
                kind="documents",
                role="system",
                content=d.text,
                stability=d.stability,
                declared=True,
                items=(d.id,),
            )
            for d in self.documents
        )

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    @property
    def digest(self) -> str:
        """Stands for the whole content, in order, without holding any of it."""
        return content_hash("\n".join(f"{s.role}:{s.content_hash}" for s in self.segments))


@lru_cache(maxsize=4096)
def tool_segment(tool: Tool) -> Segment:
    """A tool as a unit of a prompt."""
    return Segment(
        name=f"tools.{tool.name}",
        kind="tools",
        role="system",
        content=tool.text,
        declared=True,
        content_hash=tool.content_hash,
    )


def _message(
    index: int, message: Mapping[str, Any], names: dict[str, int], *, question: bool
) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ValueError(f"messages[{index}] has no role.")
    content = message.get("content")
    extras = {k: v for k, v in message.items() if k not in _BODY}
    kind = "instructions" if role in SYSTEM_ROLES else "question" if question else "history"
    name = f"messages[{index}]"
    if content is None:
        return Message(role, extras, (), null=True)
    if isinstance(content, str):
        text = Segment(
            name=_unique(name, names), kind=kind, role=role, content=content, message=index
        )
        return Message(role, extras, (text,))
    if not isinstance(content, Sequence):
        raise ValueError(f"{name}.content is neither text nor a list of parts.")
    plain = Segment(name=name, kind=kind, role=role, content="", message=index)
    units = _units(content, plain)
    return Message(role, extras, tuple(replace(u, name=_unique(u.name, names)) for u in units))


def _units(parts: Sequence[Any], plain: Segment) -> Iterator[Segment]:
    """Units of a list of parts: one for each marked part, and one for each run of plain text."""
    run: list[str] = []

    def flush() -> Iterator[Segment]:
        if run:
            text = "".join(run)
            joints = tuple(accumulate(map(len, run[:-1])))
            run.clear()
            yield replace(plain, content=text, content_hash=content_hash(text), joints=joints)

    for part in parts:
        if isinstance(part, str):
            run.append(part)
            continue
        if not isinstance(part, Mapping):
            raise ValueError(f"{plain.name}.content holds a {type(part).__name__}.")
        text = part.get("text")
        if not isinstance(text, str):
            yield from flush()
            yield replace(plain, part=part, content_hash=content_hash(repr(part)))
            continue
        mark = mark_of(part)
        if mark is None:
            run.append(text)
            continue
        yield from flush()
        yield Segment(
            name=mark["name"],
            kind=mark["kind"],
            role=plain.role,
            content=text,
            stability=mark["stability"],
            declared=True,
            message=plain.message,
            items=tuple(mark.get("items", ())),
            points=mark.get("points", True),
        )
    yield from flush()


def _unique(name: str, names: dict[str, int]) -> str:
    unique = name
    while unique in names:
        names[name] += 1
        unique = f"{name}#{names[name]}"
    names[unique] = 1
    return unique


def _merged(units: Iterable[Segment]) -> list[Segment]:
    """Neighbouring plain texts as one, so that a message has one plain part where it can."""
    out: list[Segment] = []
    for unit in units:
        last = out[-1] if out else None
        plain = not unit.declared and unit.part is None
        if last is not None and plain and not last.declared and last.part is None:
            out[-1] = replace(last, content=last.content + unit.content)
        else:
            out.append(unit)
    return out


def _part(unit: Segment) -> dict[str, Any]:
    if unit.part is not None:
        return dict(unit.part)
    out: dict[str, Any] = {"type": "text", "text": unit.content}
    if unit.declared:
        mark: Mark = {"name": unit.name, "kind": unit.kind, "stability": unit.stability}
        if unit.items:
            mark["items"] = list(unit.items)
        if not unit.points:
            mark["points"] = False
        out[KEY] = dict(mark)
    return out
