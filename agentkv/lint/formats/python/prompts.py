"""Prompts that are found by what is called with them."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python import apis
from agentkv.lint.formats.python.bits import Slot, size
from agentkv.lint.formats.python.drafts import PartDraft, RequestDraft
from agentkv.lint.formats.python.expressions import hubbed
from agentkv.lint.formats.python.looks import NO_WORDS, shown_text
from agentkv.lint.formats.python.messages import (
    CLASSES,
    Reading,
    content_bits,
    message,
)
from agentkv.lint.formats.python.requests import Requests
from agentkv.lint.formats.python.settings import node_of
from agentkv.lint.formats.python.shapes import natural, score, strong_name, strong_text
from agentkv.lint.formats.python.templates import TEMPLATES
from agentkv.lint.formats.python.tools import tools_use
from agentkv.lint.formats.python.values import (
    Dict,
    Fn,
    Lib,
    Made,
    Many,
    Str,
    Thing,
    Value,
    name_of,
    ops_of,
)

_RUN = re.compile(
    r"^(?:a?invoke|a?stream|a?batch|a?predict|a?generate|__call__|a?call_as_llm|a?predict_messages|astream_events|a?complete|a?chat|stream_chat|astream_chat|run|run_sync|run_stream|kickoff|query)$"
)

_MODEL = re.compile(
    r"(?:llm|model|chat|client|gpt|claude|agent|chain|assistant|runnable|lm|openai|ollama)",
    re.IGNORECASE,
)

_BUILDERS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "len",
        "list",
        "tuple",
        "sorted",
        "dumps",
        "deepcopy",
        "copy",
        "print",
        "str",
        "repr",
        "isinstance",
        "add",
        "from_messages",
        "zip",
        "enumerate",
        "count_tokens",
        "num_tokens_from_messages",
        "assertEqual",
        "from_examples",
        "map",
        "filter",
        "set",
        "reversed",
        "any",
        "all",
        "sum",
        "update",
        "parametrize",
        "ValueError",
    ]
)


_STEPS = frozenset(
    [
        "system",
        "system_message",
        "system_prompt",
        "system_instruction",
        "with_system",
        "with_system_message",
        "with_system_prompt",
        "with_instructions",
        "set_system",
        "set_system_prompt",
        "set_system_message",
        "set_instructions",
        "add_system",
        "add_system_message",
        "add_system_prompt",
        "update_system_prompt",
    ]
)
"""Methods that are given a system text."""


def tail_of(callee: str) -> str:
    return callee.rpartition(".")[2]


class Prompts(Requests):
    """Tells calls of models and makers of agents from all other calls."""

    def sent(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        api = apis.api_of(callee, set(kwargs))
        if api is not None:
            return self._request(node, api, callee, args, kwargs)
        if (
            tail_of(callee) == "override"
            and {"tools", "model"} & set(kwargs)
            and self._middleware()
        ):
            system = ("system_prompt", "system_message")
            return self._request(
                node, apis.Api("langchain", ("messages",), system), callee, (), kwargs
            )
        if apis.AGENTS.search(callee):
            return self._agent(node, callee, args, kwargs)
        if self._configured(callee):
            api = apis.Api(
                "unknown", ("messages", "prompt", "input", "text"), apis.SYSTEM_WORDS, True
            )
            return self._request(node, api, callee, args, kwargs)
        tail = callee.rpartition(".")[2]
        if (
            "messages" in kwargs
            and self._is_chat(kwargs["messages"])
            and not TEMPLATES.search(callee)
        ):
            return self._request(
                node, apis.Api("unknown", ("messages",), ("system",)), callee, args, kwargs
            )
        for key in ("json", "data", "body", "payload"):
            body = kwargs.get(key)
            if (
                isinstance(body, Dict)
                and body.get("messages", "prompt", "contents", "input") is not None
                and (body.get("model", "messages") is not None)
            ):
                return self._body(node, body)
        if tail == "bind_tools" and (args or "tools" in kwargs):
            return self._bound(node, args[0] if args else kwargs["tools"])
        if _RUN.match(tail) and args and isinstance(node.func, ast.Attribute):
            return self._run(node, callee, args, kwargs)
        if (
            args
            and self._is_chat(args[0])
            and not TEMPLATES.search(callee)
            and tail not in _BUILDERS
        ):
            return self._request(
                node, apis.Api("unknown", (), (), first=True), callee, args, kwargs
            )
        self._by_keyword(node, callee, args, kwargs)
        self._built(node, tail, args)
        if self.program.alone and not self.program.wants:
            self.program.wants = self._leaves(node, callee, (*args, *kwargs.values()))
        return False

    def _middleware(self) -> bool:
        """Whether this function stands around LangChain's calls of a model."""
        function = self.function
        if function is None or isinstance(function.node, ast.Lambda):
            return False
        return "model_call" in function.name or any(
            "wrap_model_call" in d for d in function.decorators
        )

    def _configured(self, callee: str) -> bool:
        """Whether the project's configuration names this function as one that sends a prompt."""
        sinks = self.program.project.sinks
        if not sinks:
            return False
        tail = callee.rpartition(".")[2]
        return any(
            callee == s
            or s.endswith(f".{callee}")
            or callee.endswith(f".{s}")
            # A method of something whose class is not known here.
            or ("." in callee and s.rpartition(".")[2] == tail)
            for s in sinks
        )

    def _leaves(self, node: ast.Call, callee: str, values: tuple[Value, ...]) -> bool:
        """Whether text that may be a prompt goes to a function of another module."""
        func: ast.expr = node.func
        while isinstance(func, ast.Attribute):
            func = func.value
        if isinstance(func, ast.Call) and isinstance(func.func, ast.Name):
            func = func.func  # `Client().ask(...)`
        if not isinstance(func, ast.Name):
            return False
        known = func.id in self.module.imports or func.id in self.env
        if func.id != "self" and not known and isinstance(self.look(func.id), Thing):
            return False  # neither of this module nor of another
        likely = bool(_MODEL.search(callee))
        return any(
            isinstance(v, Str)
            and size(v.bits) >= 30
            and (score(shown_text(v.bits)) >= 2 or (likely and natural(shown_text(v.bits), 8)))
            for v in values
        ) or any(self._imports_text(v, likely) for v in values)

    def _imports_text(self, value: Value, likely: bool) -> bool:
        """Whether a value is, or holds, what another module's name calls a text of a prompt."""
        if isinstance(value, Str):
            names = [b.expr.strip("{}") for b in value.bits if isinstance(b, Slot)]
        else:
            names = [value.dotted] if isinstance(value, Lib) else []
        for name in names:
            first, _, last = name.rpartition(".")
            known = isinstance(value, Lib) or (first or last).split(".")[0] in self.module.imports
            if known and last.isupper() and (likely or strong_text(last)):
                return True
        return False

    def _run(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        """`llm.invoke(...)`: a list of messages, a text, or the state of a graph."""
        first = args[0]
        assert isinstance(node.func, ast.Attribute)
        base = name_of(node.func.value) or callee
        if isinstance(first, Dict | Str | Thing) and hubbed(self.value(node.func.value)):
            return self._remote(node)
        if isinstance(first, Dict):
            inner = first.get("messages")
            if inner is not None and self._is_chat(inner):
                first = inner
            else:
                return False
        likely = bool(_MODEL.search(base))
        if (
            self._is_chat(first)
            or (
                likely
                and isinstance(first, Str)
                and score(shown_text(first.bits)) >= 1
                and size(first.bits) >= 40
            )
            or (likely and isinstance(first, Many | Thing) and ops_of(first))
        ):
            api = apis.Api("langchain", (), (), first=True)
        else:
            return False
        return self._request(node, api, callee, (first, *args[1:]), kwargs)

    def _remote(self, node: ast.Call) -> bool:
        """`(hub.pull("...") | llm).invoke({...})`."""
        assert isinstance(node.func, ast.Attribute)
        where = self.module.where(node)
        facts = self.value(node.func.value).facts
        part = PartDraft("system", (Slot("prompt", "prompt", facts, where),), where)
        request = RequestDraft(
            "langchain",
            where,
            None,
            ops=tuple((where, op) for op in self._rebuilt([part])),
            in_loop=bool(self.loops),
        )
        self.emit([part], where, request=request)
        return True

    def _bound(self, node: ast.Call, value: Value) -> bool:
        """`model.bind_tools(...)`: its calls bring no tools of their own."""
        where = self.module.where(node)
        use = tools_use(value, node_of(node, "tools", 0), self)
        if use is None:
            return False
        if use.filtered and use.level == "unknown":
            # What a framework binds is whatever it was given.
            use = replace(use, filtered=False)
        self.emit([], where, request=RequestDraft("langchain", where, use))
        return True

    def _built(self, node: ast.Call, tail: str, args: tuple[Value, ...]) -> None:
        """`builder.system("...").user("...")`: steps of a builder that are called as roles are."""
        if tail not in _STEPS or len(args) != 1 or not isinstance(node.func, ast.Attribute):
            return
        root = self.callee(node.func).partition(".")[0]
        if root in ("os", "platform", "subprocess", "shell", "sh"):
            return
        text = args[0]
        if isinstance(text, Str) and natural(shown_text(text.bits), 12):
            self.considered("system_prompt", text, node.args[0])

    def _body(self, node: ast.Call, body: Dict) -> bool:
        named = {e.key: e.value for e in body.entries if e.key}
        api = apis.Api(
            "unknown", ("messages", "prompt", "contents", "input"), ("system", "instructions")
        )
        return self._request(node, api, "post", (), named)

    def _agent(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> bool:
        """Constructors of agents: their system text is followed by all messages of a run."""
        bits: list[PartDraft] = []
        for key in (*apis.SYSTEM_WORDS, *apis.AGENT_WORDS):
            value = kwargs.get(key)
            if value is None:
                continue
            if isinstance(value, Made) and value.tail in CLASSES:
                part = message(value, Reading(), value.where)
                if part is not None and size(part.bits):
                    bits.append(part)
                continue
            if isinstance(value, Fn) and key in (
                "prompt",
                "instructions",
                "system_prompt",
                "state_modifier",
            ):
                self._callable_prompt(value)
                continue
            if isinstance(value, Str | Thing) and (
                key in apis.SYSTEM_WORDS or isinstance(value, Str)
            ):
                if (
                    isinstance(value, Str)
                    and key in ("role", "goal", "description")
                    and "Agent" not in callee
                ):
                    continue
                entry = (
                    next(k.value for k in node.keywords if k.arg == key)
                    if any(k.arg == key for k in node.keywords)
                    else node
                )
                where = self.module.where(entry)
                bits.append(PartDraft("system", content_bits(value, Reading(), where), where))
        if len(bits) > 1 and all(p.role == "system" for p in bits):
            merged = tuple(b for p in bits for b in p.bits)
            bits = [PartDraft("system", merged, bits[0].where, marker=bits[0].marker)]
        tools = kwargs.get("tools")
        if tools is None and "create" in callee and len(args) > 1:
            tools = args[1]
        use = None
        if tools is not None:
            use = tools_use(tools, node_of(node, "tools", 1), self)
        if not bits and use is None:
            return False
        request = RequestDraft(
            "langchain" if "create_" in callee else "unknown",
            self.module.where(node),
            use,
            in_loop=bool(self.loops),
        )
        if (
            not sum(size(p.bits) for p in bits)
            and not any(isinstance(b, Slot) and b.param for p in bits for b in p.bits)
            and use is None
        ):
            return False
        self.emit(
            bits, self.module.where(node), evidence="framework", followed=True, request=request
        )
        return True

    def _callable_prompt(self, value: Fn) -> None:
        function = self.program.function(value.owner)
        if function is None:
            return
        frame = self.frame_of(function)
        for made, node in frame.returns:
            if isinstance(made, Str) and size(made.bits) and isinstance(node, ast.expr):
                part = PartDraft("system", made.bits, frame.module.where(node))
                frame.emit(
                    [part],
                    frame.module.where(node),
                    name=function.name,
                    evidence="framework",
                    followed=True,
                )

    def _by_keyword(
        self, node: ast.Call, callee: str, args: tuple[Value, ...], kwargs: dict[str, Value]
    ) -> None:
        """`ask(system_prompt=f"...")`: what an argument is called."""
        for key, value in kwargs.items():
            if key in NO_WORDS or not isinstance(value, Str):
                continue
            if not strong_name(key) and key not in apis.SYSTEM_WORDS:
                continue
            entry = node_of(node, key, None)
            if entry is not None:
                self.considered(key, value, entry)
