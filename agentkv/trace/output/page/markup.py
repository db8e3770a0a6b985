"""HTML from values: a text is escaped unless it is `Markup` already, so nothing of a prompt can
become an element or an attribute."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

from agentkv.trace.output.difference import visible

_VOID = {"meta", "link", "br", "hr", "rect", "path", "line", "col"}


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def el(
    tag: str, *children: Markup | str | int | Iterable[Markup] | None, **attributes: Any
) -> Markup:
    """An element. Attributes: `class_` and `for_` without the underscore, other `_` are `-`; None
    and False leave one out, True writes it bare."""
    head = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        head.append(name if value is True else f'{name}="{escape(_clean(str(value)), quote=True)}"')
    if tag in _VOID:
        return Markup(f"<{' '.join(head)}/>")
    return Markup(f"<{' '.join(head)}>{join(*children)}</{tag}>")


def join(*children: Markup | str | int | Iterable[Markup] | None) -> Markup:
    """Children one after the other, text escaped."""
    out: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            out.append(child)
        elif isinstance(child, str):
            out.append(escape(_clean(child), quote=False))
        elif isinstance(child, int):
            out.append(str(child))
        else:
            out.extend(child)
    return Markup("".join(out))


def embedded(value: Any) -> Markup:
    """JSON that can stand inside a script element: no `<`, `>` or `&` is left in it, and nothing that
    does not print (a lone surrogate, which UTF-8 cannot hold; what turns text around)."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup("".join(c if c not in "<>&" and c.isprintable() else _escape(c) for c in text))


def _escape(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) > 0x7E else f"\\u{ord(char):04x}"


def percentage(share: float) -> str:
    """A length of an SVG."""
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def _clean(text: str) -> str:
    """Line breaks and tabs stay; control characters, which HTML forbids or which turn the text of a
    whole line around, are shown by their number."""
    return "".join(c if c in "\n\t" or c == " " else visible(c) for c in text)
