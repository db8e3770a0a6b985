"""Copies of earlier messages with another content: `{**m, "content": "[cleared]"}`."""

from __future__ import annotations

import ast
import re


def rewritten(node: ast.AST, turns: set[str]) -> bool:
    """Whether somewhere in an expression one of the messages `turns` is copied with a fixed content."""
    return bool(turns) and any(_copy(n, turns) for n in ast.walk(node))


def _copy(node: ast.AST, turns: set[str]) -> bool:
    match node:
        case ast.Dict(keys=keys, values=values):
            spread = any(
                k is None and isinstance(v, ast.Name) and v.id in turns
                for k, v in zip(keys, values, strict=True)
            )
            return spread and any(
                isinstance(k, ast.Constant) and k.value == "content" and isinstance(v, ast.Constant)
                for k, v in zip(keys, values, strict=True)
            )
        case ast.Call(func=ast.Name(id="dict" | "replace"), args=[ast.Name(id=name), *_]):
            return name in turns and _fixed(node.keywords)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="model_copy" | "copy"),
            keywords=[ast.keyword(arg="update", value=ast.Dict(keys=keys, values=values))],
        ):
            return name in turns and any(
                isinstance(k, ast.Constant) and k.value == "content" and isinstance(v, ast.Constant)
                for k, v in zip(keys, values, strict=True)
            )
    return False


def _fixed(keywords: list[ast.keyword]) -> bool:
    return any(k.arg == "content" and isinstance(k.value, ast.Constant) for k in keywords)


def moving(loop: ast.AST) -> bool:
    """Whether which messages a loop changes depends on how many there are: what is always changed in
    the same way stays as it is."""
    return re.search(r"\blen\(|\[:-|\[-\w+:|\breversed\(", ast.unparse(loop)) is not None
