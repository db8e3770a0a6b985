"""What a rule is, and the list of all rules.

One rule, one file in `rules/`: a class with a code, a name, and a docstring that is its page
(`agentkv rule KV101`): what it catches, why it costs, a bad and a good example, and when it is
wrong. A rule reads documents and yields findings; it never reads files and knows no format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import cleandoc
from pkgutil import iter_modules
from typing import ClassVar, Literal

from agentkv.lint.context import Context
from agentkv.lint.finding import Finding
from agentkv.lint.template import Document

Certainty = Literal["default", "heuristic"]

FAMILIES = {
    "KV0": "comments of the linter",
    "KV1": "volatile content",
    "KV2": "order",
    "KV3": "nondeterministic serialisation",
    "KV4": "history",
    "KV5": "tools and schema",
    "KV6": "chat template and tokens",
    "KV7": "provider cache settings",
}


class Rule:
    """Base of every rule. `default` rules are on; `heuristic` ones report at info."""

    code: ClassVar[str]
    name: ClassVar[str]
    certainty: ClassVar[Certainty] = "default"
    rank: ClassVar[int] = 50
    """Of several rules that speak of one slot the one with the lowest rank is reported."""

    def check(self, document: Document, context: Context) -> Iterator[Finding]:
        """Findings of one file, priced. Fixes are filled in by the pipeline. Several rules may yield
        the same slot: `find` keeps one."""
        raise NotImplementedError

    @classmethod
    def page(cls) -> str:
        """The rule's documentation, as Markdown."""
        return cleandoc(cls.__doc__ or "")

    @classmethod
    def family(cls) -> str:
        return FAMILIES[cls.code[:3]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules run. Codes may be prefixes (`KV1`), names are taken too, `ALL` is every rule."""

    select: tuple[str, ...] = ("default",)
    ignore: tuple[str, ...] = ()

    def rules(self) -> list[Rule]:
        """Raises ValueError for a code that no rule has."""
        chosen = {r for word in self.select for r in matching(word)}
        chosen -= {r for word in self.ignore for r in matching(word)}
        return [r() for r in all_rules() if r in chosen]


def find(
    document: Document,
    context: Context,
    rules: Iterable[Rule] | None = None,
    *,
    failed: Callable[[Rule, Exception], None] | None = None,
) -> list[Finding]:
    """Findings of one file by `rules` (all of them by default), one a slot, in the file's order.

    Every rule is asked, also those that are not wanted: a slot belongs to the most specific rule,
    and ignoring that rule does not make it another's. A rule that raises is told to `failed`, or
    raises here where that is None.
    """
    from agentkv.lint.rules._resolve import resolve

    found: list[Finding] = []
    for kind in all_rules():
        rule = kind()
        try:
            found += rule.check(document, context)
        except Exception as error:
            if failed is None:
                raise
            failed(rule, error)
    kept = {r.code for r in all_rules()} if rules is None else {r.code for r in rules}
    return [f for f in resolve(found, context) if f.code in kept]


@cache
def all_rules() -> tuple[type[Rule], ...]:
    """Every rule, by code."""
    from agentkv.lint import rules

    for module in iter_modules(rules.__path__):
        import_module(f"{rules.__name__}.{module.name}")
    found = sorted(_subclasses(Rule), key=lambda r: r.code)
    codes = [r.code for r in found]
    if len(set(codes)) != len(codes):
        raise RuntimeError(f"two rules have one code: {codes}")
    return tuple(found)


def rule_named(word: str) -> type[Rule]:
    """The rule with this code or name. Raises KeyError."""
    for rule in all_rules():
        if word.upper() == rule.code or word.lower() == rule.name:
            return rule
    raise KeyError(word)


def matching(word: str) -> list[type[Rule]]:
    """Rules that `word` (`default`, `ALL`, a code, a prefix of codes, a name) stands for. All rules
    are on by default; those that judge by signs report at info."""
    if word == "default" or word.upper() == "ALL":
        return list(all_rules())
    found = [r for r in all_rules() if r.code.startswith(word.upper()) or r.name == word.lower()]
    if not found:
        raise ValueError(f"no rule has the code or name {word!r} (see `agentkv rule --all`).")
    return found


def _subclasses(kind: type[Rule]) -> Iterator[type[Rule]]:
    for sub in kind.__subclasses__():
        yield from _subclasses(sub)
        if "code" in sub.__dict__:
            yield sub
