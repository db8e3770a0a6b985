"""What may not move, beyond what layout's own guards say: examples, definitions, back references."""

from __future__ import annotations

import re

from agentkv.layout.points import closing, said
from agentkv.layout.words import unread
from agentkv.prompt.segment import Segment

_ANAPHORA = re.compile(
    r"^\W*(?:it(?!(?:['’]s|\s+is)\s+(?:now\b|currently\b|[{$%<]))|its|this|that|these|those|they|them|their|he|she|his|her|such|so|then|therefore|hence|"
    r"thus|otherwise|also|however|but|and|or|both|same|if\s+(?:so|not)|"
    r"er|sie|es|dies\w*|jene\w*|daher|deshalb|sonst|dann|außerdem|aber|und|oder|"
    r"il|elle|ils|elles|cela|ceci|ces?|cette|donc|ainsi|sinon|alors|mais|et|ou|"
    r"esto|eso|estos|estas|así|entonces|pero|también|y|o)\b|"
    r"^\W*(?:这|那|它|其|因此|所以|否则|これ|それ|この|その|그|이것)",
    re.IGNORECASE,
)
_DIALOGUE = re.compile(
    r"^\s*(?:[-*]\s*)?(?:example|ex|beispiel|exemple|ejemplo|input|output|question|answer|q|a|user|assistant|"
    r"human|ai|bot|customer|agent|thought|action|observation)\s*\d*\s*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_DEFINES = re.compile(
    r"\{%[-+]?\s*(set|macro|import|from|include|extends|block|call|filter|raw)\b\s*(\w*)"
)
_WALRUS = re.compile(r":=|\bawait\b|\byield\b|\bnext\(|\.pop\(")
_POSITIONAL = re.compile(r"\{(?:![rsa])?(?::[^{}]*)?\}|%[-#0 +]*\d*(?:\.\d+)?[sdrfgiaxX]")
_PRIMING = re.compile(r"(?:[:：=]|->|=>|→|⇒|<[A-Za-z_][\w.-]*>|\{|\[|\bA\.)$")
_THIS = re.compile(
    r"\b(?:this|these|those|diese[rsmn]?|dies|cette|ces|cet|este|esta|estos|estas)\s+(\w+)",
    re.IGNORECASE,
)
_PRONOUN = re.compile(
    r"\b(?:it|its|they|them|their|sein|seine|ihre|son|sa|ses|su|sus)\b", re.IGNORECASE
)
_ROLE = re.compile(
    r"<\|[^|<>]*\|>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|</?s>|"
    r"^[ \t]*(?:#+[ \t]*)?(?:system|user|assistant|human|instruction|response)[ \t]*:[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_AROUND = frozenset(
    [
        "day",
        "week",
        "month",
        "year",
        "hour",
        "minute",
        "moment",
        "time",
        "morning",
        "evening",
        "conversation",
        "chat",
        "call",
        "session",
        "customer",
        "user",
        "person",
        "client",
        "patient",
        "student",
        "shop",
        "store",
        "company",
        "team",
        "product",
        "project",
        "account",
        "order",
        "is",
        "are",
        "was",
        "were",
        "means",
        "tag",
        "woche",
        "monat",
        "jahr",
        "gespräch",
        "kunde",
        "jour",
        "semaine",
        "mois",
        "client",
        "día",
        "semana",
        "mes",
        "cliente",
        "request",
        "agent",
        "assistant",
        "system",
    ]
)
PINNED_WORDS = 60
"""Closing reminders of so many words are kept at the end; more of them are rules like any others."""


def language(text: str) -> str | None:
    """Why a text cannot be read for pointing words."""
    if unread(text):
        return "it is in a language whose pointing words are not known here."
    return None


def anaphora(text: str) -> str | None:
    found = _ANAPHORA.match(text.lstrip())
    return found[0].strip() if found else None


def demonstrative(moved: str, ahead: str, behind: str) -> str | None:
    """Words that mean what stands near: "this form" in the passage, "this date" behind it."""
    for found in _THIS.finditer(moved):
        if found[1].lower() not in _AROUND:
            return f"its text says {found[0]!r}, which may point at its neighbours."
    words = {w.lower() for w in re.findall(r"\w+", moved)}
    for found in (*_THIS.finditer(ahead), *_THIS.finditer(behind)):
        if found[1].lower() in _AROUND:
            continue
        if found[1].lower() in words or found[1].lower().rstrip("s") in words:
            return f"text around it says {found[0]!r}, which may point at it."
    return None


def pronoun(moved: str, behind: str) -> str | None:
    """Why a bare value may not leave the line behind it: "{article}", "List its events"."""
    found = _PRONOUN.search(behind)
    if found and not re.search(r"\w{2,}", re.sub(r"\{[^{}]*\}|\$\w+|[{}$%]", " ", moved)):
        return f"what follows says {found[0]!r}, which may mean it."
    return None


def roles(passed: str) -> str | None:
    """A mark between it and its new place that begins a message of another role."""
    found = _ROLE.search(passed)
    return (
        f"{found[0].strip()!r} stands in between, which begins another message." if found else None
    )


def continues(ahead: str, text: str) -> bool:
    """Whether `text` goes on in the middle of a sentence of the line ahead of it: wrapped prose."""
    end = ahead.rstrip()
    if not end or "\n\n" in ahead[len(end) :]:
        return False
    first = text.lstrip()[:1]
    if first.islower():
        return end[-1] not in ".!?:。！？：" or text[:1] in " \t"
    return False


def examples(moved: str, passed: str) -> str | None:
    """Why a sample dialogue may not be torn."""
    inside, across = _DIALOGUE.search(moved), _DIALOGUE.findall(passed)
    if inside and len(across) >= 2:
        return f"it belongs to examples ({inside[0].strip()!r}), which keep their order."
    return None


def definitions(moved: str, passed: str, jinja: bool) -> str | None:
    """Names that are made in, or between, what would change places."""
    if jinja:
        found = _DEFINES.search(moved)
        if found and found[1] in ("set", "macro", "import", "from", "include", "extends", "block"):
            return f"it holds {{% {found[1]} %}}, which what follows may need."
        for kind, name in _DEFINES.findall(passed):
            if (
                kind in ("set", "macro", "import", "from")
                and name
                and re.search(rf"\b{re.escape(name)}\b", moved)
            ):
                return f"{{% {kind} {name} %}} stands behind it, and it reads {name!r}."
    return None


def evaluation(moved: str, passed: str, syntax: str) -> str | None:
    """Order of evaluation, and arguments that are counted."""
    if syntax in ("fstring", "python"):
        found = _WALRUS.search(moved)
        if found:
            return f"its expression does something ({found[0].strip()!r}), so its place matters."
    if syntax in ("format", "percent"):
        pattern = _POSITIONAL
        if pattern.search(moved) and pattern.search(passed):
            return "its arguments are counted, not named: moved, it would take another's value."
    return None


def primes(text: str) -> bool:
    return _PRIMING.search(text.rstrip()) is not None


def pinned(text: str, last: bool) -> bool:
    """Whether a unit is a closing reminder, or primes the answer."""
    if closing(text) is not None:
        return True
    return last and primes(text)


def pointed(earlier: list[str], later: list[str]) -> str | None:
    """Words in other messages that may point at a text that leaves its message."""
    for text in later:
        words = said(_segment(text)).back
        if words:
            return f"a later message says {words!r}, which may point at it."
    for text in earlier:
        words = said(_segment(text)).below
        if words:
            return f"an earlier message says {words!r}, which may point at it."
    return None


def _segment(text: str) -> Segment:
    return Segment(name="message", kind="instructions", role="system", content=text)
