"""Recorded requests: OpenAI chat, responses and batch, Anthropic, Bedrock Converse, Gemini.

One request shows what is static: markers, tools, settings, values that look like a clock. Of a log
the first lines are read; comparing requests is the work of `agentkv trace`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from agentkv.lint.formats import _json, _shapes
from agentkv.lint.formats._document import finish
from agentkv.lint.formats._evidence import in_prompt_folder
from agentkv.lint.formats._expression import Names
from agentkv.lint.formats._jinja import read as read_jinja
from agentkv.lint.formats._jinja import role_of
from agentkv.lint.formats._jinja_tokens import TemplateError
from agentkv.lint.formats._messages import Item, Message, span
from agentkv.lint.formats._tree import Node, TreeError
from agentkv.lint.formats.base import Project
from agentkv.lint.source import BOM, Slice, Source
from agentkv.lint.template import (
    Document,
    Hole,
    Part,
    Piece,
    Request,
    Role,
    Setting,
    Template,
    ToolsUse,
    Trait,
)

MOST_LINES = 3
_SETTINGS = [
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "cache_salt",
    "tool_choice",
    "toolChoice",
    "response_format",
    "model",
    "modelId",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "effort",
    "output_config",
    "text",
    "chat_template_kwargs",
    "previous_response_id",
    "cachedContent",
    "parallel_tool_calls",
    "service_tier",
    "user",
    "additionalModelRequestFields",
]
_UUID = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\b[0-9a-f]{32}\b"
)
_HOLE = re.compile(r"\{\{\s*[A-Za-z_][\w.]*\s*(?:\|[^{}]*)?\}\}|\{%-?\s*\w+[^{}]*%\}")
_NOT_NAMES = frozenset(
    {"package.json", "tsconfig.json", "composer.json", "package-lock.json", "tokenizer_config.json"}
)


class RequestJson:
    """A `.json` or `.jsonl` file of request bodies."""

    name = "request"

    def claims(self, path: str, head: str) -> float:
        pure = PurePath(path)
        if (
            pure.suffix.lower() not in (".json", ".jsonl", ".ndjson")
            or pure.name.lower() in _NOT_NAMES
        ):
            return 0.0
        if not head.lstrip(BOM + " \t\r\n").startswith(("{", "[")):
            return 0.0
        if re.search(r'"(?:lc|_type|run_type|resourceSpans|\$schema|openapi)"\s*:', head[:400]):
            return 0.0
        if re.match(
            r'\s*\[\s*\{\s*"role"\s*:\s*"(?:system|developer|user)"\s*,\s*"content"',
            head.lstrip(BOM),
        ):
            return 0.7
        if re.search(r'"messages"\s*:\s*\[\s*\{\s*"(?:role|content|cache_control)"', head):
            return 0.8
        if (
            re.search(r'"(?:contents|systemInstruction|system_instruction)"\s*:\s*[\[{]', head)
            and '"parts"' in head
        ):
            return 0.8
        if re.search(r'"(?:model|modelId|anthropic_version)"\s*:\s*"', head) and re.search(
            r'"(?:messages|input|instructions|system|tools)"\s*:', head
        ):
            return 0.7
        if re.search(r'"(?:max_tokens|inferenceConfig|anthropic_version)"\s*:', head) and re.search(
            r'"system"\s*:', head
        ):
            return 0.7
        return 0.5 if re.search(r'"custom_id"\s*:', head) and '"body"' in head else 0.0

    def read(self, source: Source, project: Project) -> Document:
        try:
            bodies = self.bodies(source)
        except TreeError as error:
            where = f" (line {error.line})" if error.line else ""
            return Document(format=self.name, skipped=f"not JSON: {error}{where}")
        except RecursionError:
            return Document(format=self.name, skipped="nested too deeply")
        templates: list[Template] = []
        requests: list[Request] = []
        seen: set[str] = set()
        texts = [_system_texts(b) for b in bodies]
        lines = len(bodies) > 1 or PurePath(source.path).suffix.lower() != ".json"
        for n, body in enumerate(bodies):
            templated = _HOLE.search(source[body.slice]) is not None and (
                in_prompt_folder(source.path) or body.keys == ["messages"]
            )
            names = Names(project.stability) if templated else None
            try:
                others = [t for m, t in enumerate(texts) if m != n and len(t) == len(texts[n])]
                found = _Body(body, n if len(bodies) > 1 else None, names, others).read()
            except TemplateError as error:
                return Document(format=self.name, skipped=f"not a template: {error}")
            if found is None:
                continue
            key = repr(
                [
                    (p.role, [getattr(i, "value", "") for i in p.pieces])
                    for p in found[0].parts
                    if p.role == "system"
                ]
            )
            if len(bodies) > 1 and key in seen:
                continue  # another call with the same head says nothing new here
            seen.add(key)
            templates.append(replace(found[0], writable=lines is False))
            requests.append(replace(found[1], template=templates[-1]))
        return finish(source, self.name, templates, requests=requests)

    def bodies(self, source: Source) -> list[Node]:
        """The first request bodies of a file, unwrapped."""
        lines = PurePath(source.path).suffix.lower() in (".jsonl", ".ndjson")
        if lines:
            found = _json.values(source.text, MOST_LINES)
        else:
            try:
                found = [_json.parse(source.text)]
            except TreeError:
                # JSON Lines in a .json file
                found = _json.values(source.text, MOST_LINES)
                if len(found) < 2:
                    raise
        if len(found) == 1 and found[0].kind == "list":
            first = found[0].items[:1]
            if first and first[0].get("role") is None:
                found = found[0].items[:MOST_LINES]
        return [b for n in found if (b := _unwrapped(n)) is not None]


def _unwrapped(node: Node) -> Node | None:
    """The body in a batch line, a log record, or a bare list of messages."""
    if node.kind == "list":
        if node.items and node.items[0].get("role") is not None:
            body = Node("map", node.slice)
            body.pairs.append(("messages", node, node.slice))
            return body
        return None
    for key in ("body", "request", "params", "request_body", "modelInput", "input", "payload"):
        inner = node.get(key)
        if inner is not None and inner.kind == "map" and _is_body(inner):
            return inner
    return node if _is_body(node) else None


def _is_body(node: Node) -> bool:
    for key in ("messages", "contents", "input"):
        one = node.get(key)
        if one is None:
            continue
        if one.kind == "list" and any(
            i.get("role", "parts", "content", "type") is not None for i in one.items[:3]
        ):
            return True
        if key == "input" and one.kind == "text" and node.get("model") is not None:
            return True
    return False


class _Body:
    """One request body."""

    def __init__(
        self,
        node: Node,
        number: int | None,
        names: Names | None = None,
        others: Sequence[list[str]] = (),
    ) -> None:
        self.node = node
        self.others = others
        self.systems = 0
        self.names = names  # given where the texts are templates, not what was sent
        self.name = "request" if number is None else f"request {number + 1}"
        self.markers: list[Slice] = []
        self.ttls: list[str] = []
        self.parts: list[Part] = []

    def read(self) -> tuple[Template, Request] | None:
        body = self.node
        api = self.api()
        tools = body.get("tools", "toolConfig", "functions")
        if tools is not None:
            self.mark_all(tools)
        for key in ("system", "systemInstruction", "system_instruction", "instructions"):
            one = body.get(key)
            if one is not None and one.kind != "other":
                self.part("system", one, body.pair(key) if one.kind != "list" else None)
        top = body.get("cache_control")
        if top is not None and top.kind == "map":
            self.mark(top, body.pair("cache_control") or top.slice)
        messages = body.get("messages", "contents", "input")
        if messages is not None and messages.kind == "text":
            self.part("user", messages, None)
        elif messages is not None:
            for one in messages.items:
                self.message(one)
        if not self.parts:
            return None
        template = Template(
            format="request",
            name=self.name,
            parts=tuple(self.parts),
            slice=body.slice,
            syntax="jinja" if self.names is not None else "none",
        )
        request = Request(
            api=api,
            slice=body.slice,
            template=template,
            tools=_tools(tools) if tools is not None else None,
            settings=tuple(_settings(body)),
            markers=tuple(self.markers),
            marker_ttls=tuple(self.ttls),
            model=body.text("model", "modelId"),
        )
        return template, request

    def api(self) -> str:
        body = self.node
        if body.get("contents", "systemInstruction", "system_instruction") is not None:
            return "gemini"
        keys = set(body.keys)
        if keys & {
            "modelId",
            "inferenceConfig",
            "toolConfig",
            "anthropic_version",
            "additionalModelRequestFields",
        }:
            return "bedrock"
        found = {k for n in body.walk(2000) for k in n.keys}
        if "cachePoint" in found:
            return "bedrock"
        model = (body.text("model") or "").lower()
        if (
            "system" in keys
            or "cache_control" in found
            or "input_schema" in found
            or model.startswith("claude")
        ):
            return "anthropic"
        return "openai" if {"model", "messages"} & keys or "input" in keys else "unknown"

    def message(self, node: Node) -> None:
        role = role_of(node.text("role") or "")
        kind = node.text("type") or ""
        if kind in ("function_call", "reasoning", "computer_call"):
            role = "assistant"
        elif kind.endswith("_output"):
            role = "tool"
        content = node.get("content", "parts", "output")
        first = len(self.markers)
        pieces: list[Item] = []
        if content is not None:
            pieces = self.content(content, role)
        elif node.kind == "text":
            pieces, role = self.content(node, "user"), "user"
        own = node.get("cache_control")
        if own is not None and own.kind == "map":
            self.mark(own, node.pair("cache_control") or own.slice)
        marker = self.markers[-1] if len(self.markers) > first else None
        if any(
            i.get("toolResult", "tool_use_id", "functionResponse") is not None
            for i in (content.items if content else [])
        ):
            role = "tool"
        blocks, marked = _blocks(node, content)
        self.parts.append(
            Part(
                role=role,
                pieces=_only(pieces),
                slice=node.slice,
                marker=marker,
                blocks=blocks,
                marked=marked,
            )
        )

    def part(self, role: Role, node: Node, where: Slice | None) -> None:
        first = len(self.markers)
        if node.kind == "list":
            # Blocks of a system prompt are messages of their own here: each may carry a marker.
            for item in node.items:
                before = len(self.markers)
                pieces = self.block(item, role)
                marker = self.markers[-1] if len(self.markers) > before else None
                if not pieces and marker is not None and self.parts:
                    self.parts[-1] = replace(
                        self.parts[-1], marker=marker
                    )  # Bedrock: a block of its own
                elif pieces:
                    self.parts.append(
                        Part(role=role, pieces=_only(pieces), slice=item.slice, marker=marker)
                    )
            return
        pieces = self.content(node.get("parts") or node, role)
        marker = self.markers[-1] if len(self.markers) > first else None
        self.parts.append(
            Part(
                role=role,
                pieces=_only(pieces),
                slice=where or span(_only(pieces)) or node.slice,
                marker=marker,
            )
        )

    def content(self, node: Node, role: Role) -> list[Item]:
        if node.kind == "text":
            if self.names is not None:
                return read_jinja(node.region, self.names).items
            if role != "system":
                return _whole(node)
            self.systems += 1
            return _shapes.read(
                node.region,
                others=[o[self.systems - 1] for o in self.others if len(o) >= self.systems],
            )
        out: list[Item] = []
        for item in node.items if node.kind == "list" else [node]:
            out += self.block(item, role)
        return out

    def block(self, node: Node, role: Role) -> list[Item]:
        if node.kind == "text":
            return self.content(node, role)
        for key in ("cache_control", "cachePoint"):
            mark = node.get(key)
            if mark is not None and mark.kind == "map":
                self.mark(mark, node.pair(key) or mark.slice)
        text = node.get("text", "input_text", "output_text")
        if text is not None and text.kind == "text":
            return self.content(text, role)
        image = node.get("image_url", "image", "source", "inlineData", "inline_data")
        if image is not None and (node.text("type") or "image") in (
            "image",
            "image_url",
            "input_image",
        ):
            return [_image(node, image)]
        for key in ("content", "toolResult", "tool_result"):
            inner = node.get(key)
            if inner is not None and inner.kind != "other":
                return self.content(inner, role)
        for key in ("input", "toolUse", "functionCall", "functionResponse", "json"):
            inner = node.get(key)
            if inner is not None and inner.kind in ("map", "list"):
                return self.strings(inner)
        return []

    def strings(self, node: Node) -> list[Item]:
        return [p for n in node.walk(500) if n.kind == "text" for p in _whole(n)]

    def mark(self, value: Node, where: Slice) -> None:
        self.markers.append(where)
        self.ttls.append(value.text("ttl") or "5m")

    def mark_all(self, tools: Node) -> None:
        for node in tools.walk():
            for key in ("cache_control", "cachePoint"):
                mark = node.get(key)
                if mark is not None and mark.kind == "map" and mark.text("type") is not None:
                    self.mark(mark, node.pair(key) or mark.slice)


def _system_texts(body: Node) -> list[str]:
    """Texts of the system messages, in the order in which `_Body` reads them."""
    found: list[str] = []

    class _Texts(_Body):
        def content(self, node: Node, role: Role) -> list[Item]:
            if node.kind == "text" and role == "system":
                found.append(node.value)
                return []
            return super().content(node, role)

    _Texts(body, None).read()
    return found


def _blocks(message: Node, content: Node | None) -> tuple[int, tuple[int, ...]]:
    """How many blocks a message has, and which of them carry a marker."""
    count, marked = 0, []
    for item in content.items if content is not None and content.kind == "list" else ():
        point = item.get("cachePoint") is not None
        if point and len(item.keys) == 1:  # Bedrock: stands behind the block that it marks
            marked.append(max(count - 1, 0))
            continue
        count += 1
        own = item.get("cache_control")
        if point or (own is not None and own.kind == "map"):
            marked.append(count - 1)
    if content is not None and content.kind != "list":
        count = 1
    calls = message.get("tool_calls")
    count += len(calls.items) if calls is not None and calls.kind == "list" else 0
    return max(count, 1), tuple(marked)


def _whole(node: Node) -> list[Item]:
    return [node.region.piece(0, len(node.value))] if node.value else []


def _only(items: list[Item]) -> tuple[Piece, ...]:
    return tuple(i for i in items if not isinstance(i, Message))


def _image(node: Node, image: Node) -> Hole:
    link = image.value if image.kind == "text" else image.text("url", "data") or ""
    traits: set[Trait] = {"image"}
    if re.search(r"[?&](?:X-Amz-Signature|X-Goog-Signature|sig|Signature|Expires|token)=", link):
        traits.add("signed_url")
    return Hole(
        expr="image",
        name="image",
        level="turn",
        slice=node.slice,
        traits=frozenset(traits),
        why="an image",
        known=True,
    )


def _tools(node: Node) -> ToolsUse:
    inner = node.get("tools") if node.kind == "map" else node
    number = len(inner.items) if inner is not None else 0
    traits: set[Trait] = set()
    for one in node.walk(5000):
        text = one.get("description")
        if text is not None and text.kind == "text":
            traits |= {s.trait for s in _shapes.shapes(text.value)}
    return ToolsUse(
        slice=node.slice,
        traits=frozenset(traits),
        dynamic_schema=bool(traits),
        level="call" if traits else "build",
        detail=f"{number} tools",
    )


def _settings(body: Node) -> list[Setting]:
    found: list[Setting] = []
    for name, node, where in body.pairs:
        if name not in _SETTINGS:
            continue
        value = node.value if node.kind in ("text", "other") else None
        random = (
            name in ("prompt_cache_key", "cache_salt")
            and value is not None
            and _UUID.search(value) is not None
        )
        found.append(
            Setting(
                name=name,
                slice=where,
                level="call" if random else "build",
                value=value,
                traits=frozenset({"random_id"}) if random else frozenset(),
            )
        )
    return found


FORMATS = [RequestJson()]
