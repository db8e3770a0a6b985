"""Calls of a model: their messages, tools, markers, and what was done to the history."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import apis
from agentkv.lint.formats.python.base import Base
from agentkv.lint.formats.python.bits import Slot, as_text
from agentkv.lint.formats.python.drafts import PartDraft, RequestDraft
from agentkv.lint.formats.python.expressions import MIDDLE
from agentkv.lint.formats.python.facts import Where
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.messages import (
    Reading,
    content_bits,
    marked_blocks,
    parts_of,
)
from agentkv.lint.formats.python.settings import Settings, node_of
from agentkv.lint.formats.python.tools import tools_use
from agentkv.lint.formats.python.values import (
    Dict,
    Item,
    Made,
    Many,
    Str,
    Thing,
    Value,
    name_of,
    ops_of,
    walk,
)
from agentkv.lint.source import Slice
from agentkv.lint.template import HistoryOp, HistoryOpKind, ToolsUse


class Requests(Settings):
    """Records requests."""

    def _request(
        self,
        node: ast.Call,
        api: apis.Api,
        callee: str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> bool:
        reading = Reading()
        where = self.module.where(node)
        parts: list[PartDraft] = []
        system = next((kwargs[k] for k in api.system if k in kwargs), None)
        config = kwargs.get("config")
        if isinstance(config, Made | Dict):
            inner = (
                config.kwargs
                if isinstance(config, Made)
                else {e.key: e.value for e in config.entries if e.key}
            )
            system = system or inner.get("system_instruction")
            kwargs = {**{k: v for k, v in inner.items() if isinstance(k, str)}, **kwargs}
        if api.name == "bedrock" and "body" in kwargs:
            return self._invoked(node, kwargs["body"])
        if system is not None and system != NONE:
            blocks = marked_blocks(system)
            parts += [_as_system(p) for p in parts_of(blocks, reading, "system")]
        value: Value | None = None
        main: ast.expr | None = None
        for key in api.messages:
            if key in kwargs:
                value, main = kwargs[key], node_of(node, key, None)
                break
        if value is None and api.first and args:
            value, main = args[0], node.args[0] if node.args else None
        if value is not None:
            if isinstance(value, Thing) and value.fn == "template":
                value = None
            elif isinstance(value, Many) and api.name == "gemini" and not self._is_chat(value):
                parts.append(
                    PartDraft(
                        "user",
                        tuple(
                            b
                            for i in value.items
                            for p in parts_of(i.value, reading)
                            for b in p.bits
                        ),
                        where,
                    )
                )
            else:
                if (
                    isinstance(value, Thing | Str)
                    and not isinstance(value, Many)
                    and "prompt" in api.messages[:1]
                ):
                    parts.append(
                        PartDraft(
                            "user",
                            content_bits(value, reading, self.module.where(main) if main else None),
                            where,
                        )
                    )
                elif isinstance(value, Thing):
                    if value.param or ops_of(value) or "history" in value.facts.traits or parts:
                        parts += parts_of(
                            Many(
                                (
                                    Item(
                                        value,
                                        self.module.where(main) if main else where,
                                        spread=True,
                                    ),
                                )
                            ),
                            reading,
                        )
                else:
                    parts += parts_of(value, reading)
        sources = [v for v in (value, system) if v is not None]
        ops = tuple(dict.fromkeys(op for v in sources for op in self._ops(v)))
        ops = (*ops, *self._summaries(parts), *self._rebuilt(parts), *self._cut(parts))
        ops = (*ops, *self._transforms(node, kwargs))
        followed = self._followed(parts, main)
        cached = _top_marker(kwargs, node, self)
        request = RequestDraft(
            api.name if api.name != "unknown" else _vendor(callee),
            where,
            self._tools(node, kwargs),
            tuple(self._settings(node, kwargs)),
            tuple((where, op) for op in ops),
            tuple(dict.fromkeys([*cached, *reading.markers, *self._tool_markers(kwargs, reading)])),
            tuple(reading.ttls),
            self.fan > 0,
            bool(self.loops),
            as_text(kwargs.get("model", kwargs.get("modelId"))),
        )
        self.emit(parts, where, request=request, followed=followed)
        self.sent_lists += [(request, one) for one in _held(main) if self.key_of(one) is not None]
        return True

    def later(self) -> None:
        """What is done to messages after they were sent matters to the next call."""
        for request, main in self.sent_lists:
            value = self.env.get(self.key_of(main) or "")
            if value is None:
                continue
            known = {op for _, op in request.ops}
            more = [op for op in dict.fromkeys(self._ops(value)) if op not in known]
            request.ops = (*request.ops, *((request.where, op) for op in more))

    def _invoked(self, node: ast.Call, body: Value) -> bool:
        """Bedrock's `invoke_model(body=json.dumps({...}))`."""
        for k in node.keywords:
            if k.arg != "body":
                continue
            inner: ast.expr = k.value
            if isinstance(inner, ast.Call) and name_of(inner.func).endswith("dumps") and inner.args:
                inner = inner.args[0]
            made = self.value(inner)
            if isinstance(made, Dict):
                named = {e.key: e.value for e in made.entries if e.key}
                api = apis.Api("bedrock", ("messages", "prompt", "inputText"), ("system",))
                return self._request(node, api, "invoke_model", (), named)
        return False

    def _ops(self, value: Value) -> list[HistoryOp]:
        return [op for v in walk(value) for op in ops_of(v)]

    def _summaries(self, parts: list[PartDraft]) -> list[HistoryOp]:
        if not any(p.placeholder for p in parts) and len(parts) < 2:
            return []
        for part in parts[:1]:
            if part.role != "system":
                continue
            for bit in part.bits:
                if isinstance(bit, Slot) and (
                    "summary" in bit.facts.traits or re.search(r"summary", bit.name, re.I)
                ):
                    if bit.facts.level in ("build", "deploy"):
                        continue
                    return [self._op("summarised_into_head", bit)]
        return []

    def _rebuilt(self, parts: list[PartDraft]) -> list[HistoryOp]:
        for part in parts[:1]:
            if part.role != "system":
                continue
            for bit in part.bits:
                if isinstance(bit, Slot) and bit.facts.why.endswith("read at each call"):
                    return [self._op("rebuilt_each_call", bit, bit.facts.why)]
        return []

    def _cut(self, parts: list[PartDraft]) -> list[HistoryOp]:
        found = [
            b for p in parts for b in p.bits if isinstance(b, Slot) and b.facts.why.endswith(MIDDLE)
        ]
        return [self._op("mid_trim", b, MIDDLE) for b in found[:1]]

    def _transforms(self, node: ast.Call, kwargs: dict[str, Value]) -> list[HistoryOp]:
        """OpenRouter's `transforms: ["middle-out"]`."""
        body = kwargs.get("extra_body")
        given = body.get("transforms") if isinstance(body, Dict) else kwargs.get("transforms")
        if not isinstance(given, Many) or not any(
            as_text(i.value) == "middle-out" for i in given.items
        ):
            return []
        where = self.module.where(node)
        return [
            HistoryOp(
                kind="mid_trim",
                slice=Slice(where.start, where.end),
                detail="transforms: middle-out",
            )
        ]

    def _op(self, kind: HistoryOpKind, bit: Slot, detail: str = "") -> HistoryOp:
        where = bit.where if bit.where and bit.where.module == self.module.path else None
        place = Slice(where.start, where.end) if where else Slice(0, 0)
        return HistoryOp(
            kind=kind, slice=place, detail=detail or bit.name, in_loop=bool(self.loops)
        )

    def _followed(self, parts: list[PartDraft], main: ast.expr | None) -> bool:
        if parts and parts[-1].placeholder:
            return True
        key = self.key_of(main) if main is not None else None
        if key is None:
            return False
        grows = re.compile(
            rf"\b{re.escape(key)}\s*(?:\.(?:append|extend)\(|\+=|=\s*{re.escape(key)}\s*\+)"
        )
        return any(
            isinstance(loop, ast.stmt) and grows.search(self.module.code(loop))
            for loop in self.loops
        )

    def _tools(self, node: ast.Call, kwargs: dict[str, Value]) -> ToolsUse | None:
        for key in ("tools", "toolConfig", "functions", "tool_config"):
            if key in kwargs and kwargs[key] != NONE:
                value = kwargs[key]
                if isinstance(value, Dict):
                    value = value.get("tools", "functionDeclarations") or value
                return tools_use(value, node_of(node, key, None), self)
        return None

    def _tool_markers(self, kwargs: dict[str, Value], reading: Reading) -> list[Where]:
        found: list[Where] = []
        tools = kwargs.get("tools")
        if isinstance(tools, Many):
            for item in tools.items:
                if isinstance(item.value, Dict):
                    entry = item.value.entry("cache_control")
                    if entry is not None and entry.where is not None:
                        found.append(entry.where)
                        ttl = (
                            as_text(entry.value.get("ttl"))
                            if isinstance(entry.value, Dict)
                            else None
                        )
                        reading.ttls.insert(0, ttl or "5m")
        return found


def _held(node: ast.expr | None) -> list[ast.expr]:
    """Variables whose messages a request sends: itself, `[system, *messages]`, `[system] + messages`."""
    match node:
        case None:
            return []
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            return [e.value for e in elts if isinstance(e, ast.Starred)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_held(left), *_held(right)]
    return [node]


def _as_system(part: PartDraft) -> PartDraft:
    return replace(part, role="system", placeholder=False)


def _vendor(callee: str) -> str:
    low = callee.lower()
    for word in ("anthropic", "openai", "ollama", "litellm", "bedrock", "gemini", "langchain"):
        if word in low:
            return word
    return "unknown"


def _top_marker(kwargs: dict[str, Value], node: ast.Call, frame: Base) -> list[Where]:
    """`cache_control=` as an argument of the request itself."""
    if "cache_control" not in kwargs:
        return []
    entry = node_of(node, "cache_control", None)
    return [frame.module.where(entry)] if entry is not None else []
