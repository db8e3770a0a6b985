"""Arguments of a request that matter to a cache."""

from __future__ import annotations

import ast
from dataclasses import replace

from agentkv.lint.formats.python import apis
from agentkv.lint.formats.python.bits import as_text
from agentkv.lint.formats.python.drafts import SettingDraft
from agentkv.lint.formats.python.facts import Facts, Where, fact
from agentkv.lint.formats.python.guess import guess
from agentkv.lint.formats.python.templates import Templates
from agentkv.lint.formats.python.values import (
    Cls,
    Dict,
    Fn,
    Lib,
    Obj,
    Thing,
    Value,
)

_KEYS = frozenset({"prompt_cache_key", "cache_salt", "cache_key", "extra_key", "user"})
"""Settings that are names themselves: whose they are is read from what they are called."""


class Settings(Templates):
    """Reads the settings of a request."""

    def _settings(self, node: ast.Call, kwargs: dict[str, Value]) -> list[SettingDraft]:
        found: list[SettingDraft] = []
        every = dict(kwargs)
        for nested in ("extra_body", "extra_headers"):
            value = kwargs.get(nested)
            if isinstance(value, Dict):
                every |= {e.key: e.value for e in value.entries if e.key}
        for name in apis.SETTINGS:
            if name not in every:
                continue
            value = every[name]
            entry = node_of(node, name, None)
            where = (
                self.module.where(entry)
                if entry is not None
                else self._entry_where(kwargs, name, node)
            )
            text = as_text(value)
            found.append(SettingDraft(name, where, self._setting_facts(name, value, entry), text))
        return found

    def _setting_facts(self, name: str, value: Value, entry: ast.expr | None) -> Facts:
        if isinstance(entry, ast.IfExp):
            return self.test(entry.test).plus("conditional")
        facts = value.facts
        kind = as_text(value.get("type")) if isinstance(value, Dict) else None
        if name == "tool_choice" and kind == "allowed_tools":
            # Made for this: all tools stay in the prompt, and only some may be called.
            return fact("build", "allowed tools")
        if isinstance(value, Obj | Cls | Fn | Lib):
            return fact("build", "a class")
        if isinstance(value, Thing) and facts.level == "unknown" and value.name:
            named = guess(value.name)
            if named.level == "unknown" and name in ("model", "modelId"):
                return replace(facts, why=facts.why or f"`{value.name}`")
        passed = isinstance(value, Thing) and "conditional" not in facts.traits
        if passed and not facts.known and name not in _KEYS:
            # A name says what a value is about (`request[...]`: a question), not how often a
            # setting that is passed on changes.
            return replace(facts, level="unknown")
        return facts

    def _entry_where(self, kwargs: dict[str, Value], name: str, node: ast.Call) -> Where:
        for nested in ("extra_body", "extra_headers"):
            value = kwargs.get(nested)
            entry = value.entry(name) if isinstance(value, Dict) else None
            if entry is not None and entry.where is not None:
                return entry.where
        return self.module.where(node)


def node_of(node: ast.Call, key: str, position: int | None) -> ast.expr | None:
    for k in node.keywords:
        if k.arg == key:
            return k.value
    if position is not None and len(node.args) > position:
        return node.args[position]
    return None
