"""The parts of a request that get a span of their own, and the request as a template takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkv.engine.text.canonical import canonical_json, digest
from agentkv.engine.text.marks import Pen
from agentkv.engine.text.messages import Mark, Message


@dataclass(frozen=True, slots=True)
class Owner:
    """A part of the request that gets a span of its own."""

    name: str
    kind: str
    role: str | None = None
    stability: str | None = None
    digest: str = ""
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners by number, and the number that each part of each message has.

    `parts[i][j]` is the owner of part j of message i; `calls[i]` that of the rest of message i;
    `message[k]` the message of owner k.
    """

    all: tuple[Owner, ...]
    parts: tuple[tuple[int, ...], ...]
    calls: tuple[int, ...]
    message: tuple[int | None, ...]
    tools: int | None


def assign_owners(messages: Sequence[Message], tools: Sequence[dict[str, object]] | None) -> Owners:
    """Give every part of the request its owner. Names come out unique."""
    owners: list[Owner] = []
    names: dict[str, int] = {}

    def add(
        name: str, kind: str, role: str | None, mark: Mark | None, items: tuple[str, ...], *c: str
    ) -> int:
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name = f"{name}#{names[name]}"
        stability = mark.stability if mark else None
        owners.append(Owner(name, kind, role, stability, digest(*c), items))
        return len(owners) - 1

    tool_owner: int | None = None
    if tools:
        listed = tuple(str(t["function"]["name"]) for t in tools)  # type: ignore[index]
        tool_owner = add("tools", "tools", None, None, listed, *map(canonical_json, tools))
    home: list[int | None] = [None] * len(owners)
    question = max((i for i, m in enumerate(messages) if m.role == "user"), default=-1)
    parts: list[tuple[int, ...]] = []
    rest: list[int] = []
    for index, message in enumerate(messages):
        kind = "history"
        if message.role == "system":
            kind = "instructions"
        elif index == question:
            kind = "question"
        calls = [canonical_json([c.name, c.arguments]) for c in message.calls]
        extra = [message.reasoning or "", *calls]
        own: int | None = None
        numbers: list[int] = []
        if not message.parts or calls or any(p.mark is None for p in message.parts):
            unmarked = "".join(p.text for p in message.parts if p.mark is None)
            own = add(f"messages[{index}]", kind, message.role, None, (), unmarked, *extra)
        for part in message.parts:
            if part.mark is None:
                assert own is not None
                numbers.append(own)
            else:
                name = part.mark.name or f"messages[{index}]"
                numbers.append(
                    add(
                        name,
                        part.mark.kind or kind,
                        message.role,
                        part.mark,
                        part.mark.items,
                        part.text,
                    )
                )
        parts.append(tuple(numbers))
        home += [index] * (len(owners) - len(home))
        rest.append(own if own is not None else numbers[-1])
    return Owners(tuple(owners), tuple(parts), tuple(rest), tuple(home), tool_owner)


def write_messages(
    messages: Sequence[Message],
    owners: Owners,
    pen: Pen,
    *,
    text_arguments: bool,
    null_content: bool,
) -> list[dict[str, object]]:
    """The messages as the template takes them, with the pen's marks in their content."""
    out: list[dict[str, object]] = []
    for index, message in enumerate(messages):
        own = owners.calls[index]
        content: str | None = pen.content(
            [(owners.parts[index][j], part.text) for j, part in enumerate(message.parts)]
        )
        if message.calls and not content and null_content:
            content = None
        entry: dict[str, object] = {"role": message.role, "content": content}
        if message.name is not None:
            entry["name"] = pen.text(message.name)
        if message.reasoning is not None:
            thought = pen.content([(own, message.reasoning)])
            entry["reasoning_content"] = entry["thinking"] = thought
        if message.call_id is not None:
            entry["tool_call_id"] = message.call_id
        if message.calls:
            calls = []
            for call in message.calls:
                arguments = call.arguments
                if text_arguments and not isinstance(arguments, str):
                    arguments = pen.text(canonical_json(arguments))
                else:
                    arguments = pen.tree(arguments)
                function = {"name": pen.name(own, call.name), "arguments": arguments}
                calls.append({"type": "function", "id": call.id, "function": function})
            entry["tool_calls"] = calls
        out.append(entry)
    return out
