"""Methods of strings."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from agentkv.lint.formats.python.bits import Bits, Lit, Slot, as_text, tight
from agentkv.lint.formats.python.facts import FIXED
from agentkv.lint.formats.python.merge import NONE, item_bits
from agentkv.lint.formats.python.own import OwnCalls
from agentkv.lint.formats.python.values import (
    Dict,
    Item,
    Many,
    Str,
    Thing,
    Value,
    as_bits,
    name_of,
)

KEEP_TEXT = frozenset(
    [
        "strip",
        "lstrip",
        "rstrip",
        "upper",
        "lower",
        "title",
        "capitalize",
        "expandtabs",
        "removeprefix",
        "removesuffix",
        "encode",
        "decode",
        "casefold",
        "swapcase",
    ]
)


class TextCalls(OwnCalls):
    """Evaluates what is done to text."""

    def _text_method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        base: Str,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        nodes: dict[str, ast.expr],
    ) -> Value:
        name = func.attr
        if name == "format":
            named = {str(i): v for i, v in enumerate(args)} | kwargs
            shown = {str(i): n for i, n in enumerate(node.args)} | nodes
            return self.filled(base, "format", named, shown)
        if name == "format_map":
            arg = args[0] if args else NONE
            named = {e.key: e.value for e in arg.entries if e.key} if isinstance(arg, Dict) else {}
            return self.filled(base, "format", named)
        if name == "join" and len(args) == 1:
            return self._join(base, args[0], node)
        if name == "replace" and len(args) >= 2:
            return self._replaced(base, args[0], args[1], node)
        if name in KEEP_TEXT:
            return base if name not in ("strip", "lstrip", "rstrip") or args else _strip(base, name)
        if name in ("ljust", "rjust", "center") and args:
            width = args[0].number if isinstance(args[0], Thing) else None
            if isinstance(width, int | float) and width < 400:
                return base
            fill = Slot(
                self.module.code(node),
                name,
                replace(FIXED, why=f"{name}()").plus("padding"),
                self.module.where(node),
            )
            return Str((*base.bits, fill))
        if name in ("splitlines", "split"):
            return Thing(base.facts, name_of(func.value))
        return Thing(base.facts, name_of(func.value))

    def _join(self, separator: Str, what: Value, node: ast.Call) -> Value:
        between = as_text(separator) or ""
        if not isinstance(what, Many):
            if isinstance(what, Str):
                return Thing(what.facts)
            if isinstance(what, Dict):
                return Thing(what.facts, name_of(node))
            return Thing(
                what.facts,
                what.name if isinstance(what, Thing) else name_of(node),
                getattr(what, "param", None),
            )
        out: list[Lit | Slot] = []
        for i, item in enumerate(what.items):
            bits = self._item_bits(item)
            gap: Bits = (Lit(between),) if between else ()
            if item.cond is not None or item.loop is not None:
                out += item_bits(item, tight((*gap, *bits)) if i else tight((*bits, *gap)))
            else:
                out += [*gap, *bits] if i else bits
        facts = what.facts
        if what.kind == "set" or what.extra is not None:
            arg = node.args[0]
            slot = Slot(
                self.module.code(node),
                name_of(arg) or "set",
                facts,
                self.module.where(node),
                tight(out),
            )
            return Str((slot,))
        return Str(tight(out))

    def _item_bits(self, item: Item) -> Bits:
        if isinstance(item.value, Str) and not _named_expr(self.module.text, item):
            return item.value.bits
        expr = self.module.text[item.where.start : item.where.end] if item.where else ""
        name = getattr(item.value, "name", "") or expr
        if item.where is not None and item.where.module != self.module.path:
            return as_bits(item.value, Slot(name, name, item.value.facts, None))
        return as_bits(item.value, Slot(expr, name, item.value.facts, item.where))

    def _replaced(self, base: Str, old: Value, new: Value, node: ast.Call) -> Str:
        needle = as_text(old)
        if not needle or not re.search(r"\w", needle):
            return base
        out: list[Lit | Slot] = []
        for bit in base.bits:
            if isinstance(bit, Slot):
                out.append(bit)
                continue
            at = 0
            while (hit := bit.value.find(needle, at)) >= 0:
                if hit > at:
                    out.append(bit.part(at, hit))
                where = bit.part(hit, hit + len(needle)).where
                name = re.sub(r"\W+", " ", needle).strip().replace(" ", "_")
                label = name_of(node.args[1]) or name
                slot = Slot(needle, label or name, new.facts, where)
                out += as_bits(new, slot)
                at = hit + len(needle)
            if at < len(bit.value):
                out.append(bit.part(at, len(bit.value)))
        if base.use is not None:
            base.use.formatted = True
            base.use.bindings.setdefault(needle.strip("{}$<>[] "), []).append(new)
        return Str(tight(out), None, base.name)


def _strip(base: Str, name: str) -> Str:
    bits = list(base.bits)
    if bits and isinstance(bits[0], Lit) and name != "rstrip":
        first = bits[0]
        cut = len(first.value) - len(first.value.lstrip())
        bits[0] = first.part(cut, len(first.value))
    if bits and isinstance(bits[-1], Lit) and name != "lstrip":
        last = bits[-1]
        bits[-1] = last.part(0, len(last.value.rstrip()))
    return Str(tight(bits), base.use, base.name)


def _named_expr(text: str, item: Item) -> bool:
    where = item.where
    return where is not None and re.fullmatch(r"[\w.]+", text[where.start : where.end]) is not None
