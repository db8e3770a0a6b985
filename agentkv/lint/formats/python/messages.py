"""From lists of messages to the parts of a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agentkv.lint.formats.python import fields
from agentkv.lint.formats.python.bits import Bits, Slot, as_text, facts_of, tight
from agentkv.lint.formats.python.drafts import PartDraft
from agentkv.lint.formats.python.facts import Facts, Where, join
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.merge import NONE, item_bits
from agentkv.lint.formats.python.values import (
    Dict,
    Item,
    Lib,
    Made,
    Many,
    Str,
    Thing,
    Use,
    Value,
    as_bits,
)
from agentkv.lint.template import Role

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "tool": "tool",
    "function": "tool",
}
CLASSES: dict[str, Role] = {
    "SystemMessage": "system",
    "DeveloperMessage": "system",
    "SystemMessagePromptTemplate": "system",
    "HumanMessage": "user",
    "UserMessage": "user",
    "HumanMessagePromptTemplate": "user",
    "AIMessage": "assistant",
    "AssistantMessage": "assistant",
    "AIMessagePromptTemplate": "assistant",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "SystemMessageParam": "system",
    "SystemPromptPart": "system",
    "UserPromptPart": "user",
    "ChatCompletionSystemMessageParam": "system",
    "ChatCompletionUserMessageParam": "user",
    "ChatCompletionAssistantMessageParam": "assistant",
    "ChatCompletionDeveloperMessageParam": "system",
}
METHODS: dict[str, Role] = {
    "from_system": "system",
    "from_user": "user",
    "from_assistant": "assistant",
    "from_tool": "tool",
}
FRAMEWORK = ("PromptTemplate", "ChatPromptTemplate", "Message", "Placeholder", "ChatMessage")
_MARKERS = ("cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint")


@dataclass(slots=True)
class Reading:
    """How texts in a list of messages are written, and what fills them in."""

    syntax: fields.Syntax | None = None
    use: Use | None = None
    named: dict[str, Value] = field(default_factory=dict)
    markers: list[Where] = field(default_factory=list)
    ttls: list[str] = field(default_factory=list)


def marked_blocks(value: Value) -> Value:
    """Bedrock's `[{"text": ...}, {"cachePoint": ...}]`: the marker as the text's own, in front of it."""
    if not isinstance(value, Many):
        return value
    items: list[Item] = []
    for item in value.items:
        block = item.value
        entry = block.entry("cachePoint", "cache_point") if isinstance(block, Dict) else None
        before = items[-1].value if items else None
        if (
            entry is not None
            and isinstance(block, Dict)
            and len(block.entries) == 1
            and isinstance(before, Dict)
        ):
            made = before.with_entry("cachePoint", entry.value, entry.where)
            items[-1] = replace(items[-1], value=made)
            continue
        items.append(item)
    return replace(value, items=tuple(items))


def parts_of(value: Value, reading: Reading, default: Role = "user") -> list[PartDraft]:
    """The messages in a value: a list of them, one of them, or a text."""
    if isinstance(value, Many):
        if value.kind == "tuple" and _pair(value):
            return [_tuple(value, reading, None)]
        out: list[PartDraft] = []
        for item in value.items:
            out += _item(item, reading, default)
        return out
    if isinstance(value, Dict | Made):
        one = message(value, reading, None)
        return [one] if one is not None else []
    if isinstance(value, Str):
        return [PartDraft(default, texts(value, reading), _around(value.bits))]
    if value == NONE:
        return []
    return [_run(value, None)]


def _around(bits: Bits) -> Where | None:
    places = [b.where for b in bits if b.where is not None]
    if not places or any(p.module != places[0].module for p in places):
        return None
    return Where(places[0].module, min(p.start for p in places), max(p.end for p in places))


def _item(item: Item, reading: Reading, default: Role) -> list[PartDraft]:
    value = item.value
    if item.spread:
        if isinstance(value, Many):
            return parts_of(value, reading, default)
        return [_run(value, item.where)]
    one = message(value, reading, item.where)
    if one is None:
        if isinstance(value, Str):
            one = PartDraft(default, texts(value, reading), item.where)
        elif isinstance(value, Thing):
            # One message that is not known: a run of its own.
            return [_run(value, item.where)]
        elif isinstance(value, Many):
            return parts_of(value, reading, default)
        else:
            return [_run(value, item.where)]
    if item.cond is not None or item.loop is not None:
        bits = item_bits(item, one.bits) if one.bits else one.bits
        one = replace(one, bits=bits)
        if item.loop is not None and item.cond is None and not one.placeholder:
            return [one]
    return [one]


def _run(value: Value, where: Where | None) -> PartDraft:
    """A run of messages from elsewhere."""
    name = getattr(value, "name", "") or "messages"
    facts = value.facts
    if facts.level == "unknown" and not facts.known:
        by_name = guess(name)
        facts = (
            by_name if by_name.level != "unknown" else Facts("turn", why=f"messages in `{name}`")
        )
    param = value.param if isinstance(value, Thing) else None
    slot = Slot(name, name, facts, where, param=param)
    return PartDraft("unknown", (slot,), where, placeholder=True)


def _pair(value: Many) -> bool:
    if len(value.items) != 2 or any(i.spread for i in value.items):
        return False
    role = as_text(value.items[0].value)
    return role in ROLES or role in ("placeholder",)


def _tuple(value: Many, reading: Reading, where: Where | None) -> PartDraft:
    role = as_text(value.items[0].value) or ""
    content = value.items[1].value
    if role == "placeholder":
        name = (as_text(content) or "").strip("{}") if isinstance(content, Str) else ""
        return placeholder(name, where, reading)
    bits = content_bits(content, reading, value.items[1].where)
    return PartDraft(ROLES.get(role, "unknown"), bits, where)


def placeholder(name: str, where: Where | None, reading: Reading) -> PartDraft:
    """`MessagesPlaceholder(name)`."""
    given = reading.named.get(name)
    named = guess(name)
    facts = named if named.level != "unknown" else Facts("turn", why=f"messages in `{name}`")
    if given is not None and given.facts.known:
        facts = given.facts
    return PartDraft(
        "unknown", (Slot(name, name, facts, where, field=name),), where, placeholder=True
    )


def message(value: Value, reading: Reading, where: Where | None) -> PartDraft | None:
    """One message; None for what is none."""
    if isinstance(value, Many) and value.kind == "tuple" and _pair(value):
        return _tuple(value, reading, where)
    if isinstance(value, Many) and value.kind == "list" and len(value.items) == 2 and _pair(value):
        return _tuple(value, reading, where)
    if isinstance(value, Dict):
        return _dict(value, reading, where or value.where)
    if isinstance(value, Made):
        return _made(value, reading, where or value.where)
    return None


def _dict(value: Dict, reading: Reading, where: Where | None) -> PartDraft | None:
    role = value.get("role")
    content = value.get("content", "parts", "text")
    if role is None and content is None:
        return None
    name = as_text(role) if role is not None else None
    marker = _marker(value, reading)
    bits, inner = _content(content, reading, value.entry("content", "parts", "text"))
    if role is not None and name is None:
        known: Role = "unknown"
    else:
        known = ROLES.get(name or "user", "unknown")
    blocks, marked = _blocks(value, content)
    return PartDraft(
        known, bits, where, marker=marker or inner, blocks=blocks, marked=() if marker else marked
    )


def _blocks(message: Dict, content: Value | None) -> tuple[int, tuple[int, ...]]:
    """How many blocks a message has, as far as it is written out, and which carry a marker."""
    count, marked = 0, []
    for item in content.items if isinstance(content, Many) else ():
        block = item.value
        entry = block.entry(*_MARKERS) if isinstance(block, Dict) else None
        own = entry is not None and entry.value != NONE
        if own and isinstance(block, Dict) and len(block.entries) == 1:
            marked.append(max(count - 1, 0))  # Bedrock: stands behind the block that it marks
            continue
        count += 1
        if own:
            marked.append(count - 1)
    calls = message.get("tool_calls")
    count += len(calls.items) if isinstance(calls, Many) else 0
    return max(count, 1), tuple(marked)


def _content(content: Value | None, reading: Reading, entry: object) -> tuple[Bits, Where | None]:
    where = getattr(entry, "where", None)
    if content is None:
        return (), None
    if isinstance(content, Many):
        bits: list[object] = []
        marker: Where | None = None
        for item in content.items:
            block = item.value
            if isinstance(block, Dict):
                found = _marker(block, reading)
                marker = found or marker
                text = block.get("text", "content", "input_text", "guardContent")
                if text is not None:
                    bits += content_bits(
                        text, reading, getattr(block.entry("text", "content"), "where", None)
                    )
                elif (
                    block.get("image_url", "source", "image", "inlineData", "inline_data")
                    is not None
                ):
                    image = block.get("image_url", "source", "image", "inlineData", "inline_data")
                    assert image is not None
                    facts = join([i.facts for i in [image]])
                    facts = (
                        facts
                        if facts.level != "unknown"
                        else replace(facts, level="turn", why="an image")
                    )
                    bits.append(Slot("image", "image", facts.plus("image"), item.where))
            else:
                bits += content_bits(block, reading, item.where)
        return tight(bits), marker  # type: ignore[arg-type]
    return content_bits(content, reading, where), None


def content_bits(value: Value, reading: Reading, where: Where | None) -> Bits:
    """The text of a message."""
    if isinstance(value, Str):
        found = texts(value, reading)
        if (
            value.name
            and where is not None
            and not any(b.where is not None and b.where.module == where.module for b in found)
        ):
            # A constant of another module stands here by its name.
            return as_bits(Str(found), Slot(value.name, value.name, facts_of(found), where))
        return found
    if isinstance(value, Many):
        return _content(value, reading, None)[0]
    if isinstance(value, Made):
        inner = _made(value, reading, where)
        if inner is not None:
            return inner.bits
    if isinstance(value, Dict):
        text = value.get("text", "content")
        if text is not None:
            return content_bits(text, reading, where)
    if value == NONE:
        return ()
    name = getattr(value, "name", "")
    return as_bits(value, Slot(name, name, value.facts, where))


def texts(value: Str, reading: Reading) -> Bits:
    """The bits of a text, its placeholders read as the reading says."""
    if reading.syntax is None:
        if value.use is not None:
            value.use.plain = True
        return value.bits
    if value.use is not None:
        value.use.formatted, value.use.syntax = True, reading.syntax
    use = reading.use

    def resolve(name: str) -> Facts:
        root = name.split(".")[0]
        given = reading.named.get(name) or reading.named.get(root)
        if given is not None and (given.facts.known or given.facts.level != "unknown"):
            return given.facts
        if use is not None and use.bindings.get(name):
            return join(v.facts for v in use.bindings[name])
        return guess(name)

    return tight(fields.split(value.bits, reading.syntax, resolve))


def _marker(value: Dict, reading: Reading) -> Where | None:
    entry = value.entry(*_MARKERS)
    if entry is None or entry.where is None or entry.value == NONE:
        return None
    reading.markers.append(entry.where)
    ttl = as_text(entry.value.get("ttl")) if isinstance(entry.value, Dict) else None
    reading.ttls.append(ttl or "5m")
    return entry.where


def _made(value: Made, reading: Reading, where: Where | None) -> PartDraft | None:
    kind = value.kind
    tail = value.tail
    owner = kind.rpartition(".")[0].rpartition(".")[2]
    content = value.args[0] if value.args else None
    for key in ("content", "template", "text", "prompt", "parts", "blocks"):
        if key in value.kwargs:
            content = value.kwargs[key]
            break
    if tail == "MessagesPlaceholder":
        given = value.kwargs.get("variable_name", content)
        return placeholder(as_text(given) or "messages", where, reading)
    if tail in METHODS and content is not None:
        return PartDraft(METHODS[tail], content_bits(content, reading, where), where)
    if tail in ("from_template", "from_template_file") and owner in CLASSES and content is not None:
        syntax = _syntax_of(value) or "format"
        inner = Reading(syntax, reading.use, reading.named)
        return PartDraft(CLASSES[owner], content_bits(content, inner, where), where)
    if tail in CLASSES:
        if tail.endswith("PromptTemplate") and isinstance(content, Made):
            text = content.kwargs.get("template") or (content.args[0] if content.args else None)
            if isinstance(text, Str):
                inner = Reading(_syntax_of(content) or "format", reading.use, reading.named)
                return PartDraft(CLASSES[tail], texts(text, inner), where)
        plain = Reading(None, None, {}, reading.markers, reading.ttls)
        bits = _content(content, plain, None)
        return PartDraft(CLASSES[tail], bits[0], where, marker=bits[1])
    if tail in ("ChatMessage", "ChatMessagePromptTemplate", "Message", "Content", "ModelMessage"):
        role = value.kwargs.get("role")
        name = as_text(role) or ""
        if not name and role is not None:
            spelled = role.dotted if isinstance(role, Lib) else getattr(role, "name", "")
            name = spelled.rpartition(".")[2].lower()
        if not name and value.args and len(value.args) > 1:
            name, content = as_text(value.args[0]) or "", value.args[1]
        if content is None:
            return None
        return PartDraft(
            ROLES.get(name.lower(), "unknown"), _content(content, reading, None)[0], where
        )
    return None


def _syntax_of(made: Made) -> fields.Syntax | None:
    word = as_text(made.kwargs.get("template_format"))
    if word == "jinja2":
        return "jinja"
    if word == "mustache":
        return "mustache"
    return None
