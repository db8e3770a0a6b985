"""What a call gives."""

from __future__ import annotations

import ast
import re

from agentkv.lint.formats.python.libraries import LibraryCalls
from agentkv.lint.formats.python.merge import NONE
from agentkv.lint.formats.python.own import leaves_first
from agentkv.lint.formats.python.values import (
    Cls,
    Dict,
    Fn,
    Lib,
    Made,
    Many,
    Str,
    Thing,
    Value,
    name_of,
)

_FAN = re.compile(
    r"(?:asyncio|anyio)\.(?:gather|wait|as_completed)$|tqdm_asyncio\.gather$|^gather$"
)

_POOL = re.compile(
    r"(?:executor|pool|ex|tp|thread_?pool|p)\.(?:map|submit|starmap|imap|imap_unordered|apply_async|map_async)$",
    re.I,
)


class Calls(LibraryCalls):
    """Evaluates calls: who is called, and with what."""

    def call(self, node: ast.Call) -> Value:
        callee = self.callee(node.func)
        if _quiet(callee):
            self._arguments(node)  # a call of a model may be among them
            return Thing()
        fanned = bool(_FAN.search(callee)) and not leaves_first(node)
        if fanned:
            self.fan += 1
        args, kwargs, nodes = self._arguments(node)
        if fanned:
            self.fan -= 1
        if _POOL.search(callee):
            self._pooled(node, callee, args)
        made = self._called(node, callee, args, kwargs, nodes)
        self.sent(node, callee, args, kwargs)
        return made

    def callee(self, func: ast.expr) -> str:
        """The dotted name of what is called, imports resolved where the first name is one."""
        parts: list[str] = []
        node = func
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            root = node.id
            if root in self.module.imports and root not in self.env:
                root = self.module.imports[root]
            parts.append(root)
        elif isinstance(node, ast.Call):
            parts.append(self.callee(node.func) + "()")
        elif isinstance(node, ast.Subscript):
            parts.append(name_of(node) or "item")
        return ".".join(reversed(parts))

    def _arguments(
        self, node: ast.Call
    ) -> tuple[tuple[Value, ...], dict[str, Value], dict[str, ast.expr]]:
        args: list[Value] = []
        for a in node.args:
            value = self.value(a)
            if isinstance(a, ast.Starred) and isinstance(value, Many):
                args += [i.value for i in value.items]
            else:
                args.append(value)
        kwargs: dict[str, Value] = {}
        nodes: dict[str, ast.expr] = {}
        for k in node.keywords:
            value = self.value(k.value)
            if k.arg is None:
                if isinstance(value, Dict):
                    kwargs |= {e.key: e.value for e in value.entries if e.key}
                elif isinstance(k.value, ast.Call) and name_of(k.value.func) in ("locals", "vars"):
                    kwargs |= {n: v for n, v in self.env.items() if n.isidentifier()}
                continue
            kwargs[k.arg] = value
            nodes[k.arg] = k.value
        return tuple(args), kwargs, nodes

    def _called(
        self,
        node: ast.Call,
        callee: str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value:
        func = node.func
        if args and callee.startswith("agentkv.") and callee.endswith((".volatile", ".static")):
            # A marked block: the layout puts what is volatile behind everything that stays.
            return NONE if callee.endswith(".volatile") else args[0]
        if isinstance(func, ast.Name) and func.id not in self.env:
            made = self._builtin(func.id, node, args, kwargs)
            if made is not None:
                return made
        base: Value | None = None
        if isinstance(func, ast.Attribute):
            base = self.value(func.value)
            made = self._method(node, func, base, args, kwargs, nodes)
            if made is not None:
                return made
        target = (
            self.value(func) if not isinstance(func, ast.Attribute) or base is not None else None
        )
        if isinstance(target, Fn):
            function = self.program.function(target.owner)
            if function is not None:
                return self._own_call(function, target, args, kwargs, node)
        if isinstance(target, Cls):
            return self._instance(target, args, kwargs, node)
        if isinstance(target, Made) and target.kind == "lambda" and target.args:
            return target.args[0]
        if isinstance(target, Lib):
            made = self._library_call(target.dotted, node, args, kwargs)
            if made is not None:
                return made
        return self._opaque(callee, node, args, kwargs, base)

    def _method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        base: Value,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value | None:
        name = func.attr
        if isinstance(base, Str):
            return self._text_method(node, func, base, args, kwargs, nodes)
        if isinstance(base, Many):
            return self._list_method(node, func, base, args, kwargs)
        if isinstance(base, Dict):
            return self._dict_method(func, base, args)
        if isinstance(base, Made):
            return self._made_method(node, name, base, args, kwargs, nodes)
        if isinstance(base, Thing):
            return self._thing_method(node, func, base, args, kwargs)
        return None


def _quiet(callee: str) -> bool:
    """Calls whose arguments are no prompts: logs, prints, warnings."""
    root, _, rest = callee.partition(".")
    tail = callee.rpartition(".")[2]
    if (
        root in ("logging", "logger", "log", "LOG", "LOGGER", "warnings", "_logger", "console")
        and rest
    ):
        return True
    if tail in (
        "debug",
        "info",
        "warning",
        "error",
        "exception",
        "critical",
        "warn",
        "warn_once",
        "info_once",
    ):
        return True
    return callee in (
        "print",
        "pprint.pprint",
        "rich.print",
        "sys.stdout.write",
        "sys.stderr.write",
        "click.echo",
        "typer.echo",
        "typer.secho",
        "click.secho",
    )
