"""What a chat template does to old turns, read from its tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentkv.lint.formats._jinja_tokens import Token, tokens
from agentkv.lint.formats._region import Region
from agentkv.lint.template import HistoryOp, HistoryOpKind

_FOR = re.compile(r"\s*for\s+(?P<target>[\w\s,()]+?)\s+in\s+(?P<over>.*)", re.DOTALL)
_MESSAGES = re.compile(r"\b(?:\w*_)?messages\b|\bconversation\b|\bloop_messages\b")
_LAST = re.compile(
    r"""\bloop\.last\b|\bloop\.revindex0?\b
      | \bmessages\s*\[\s*-1\s*\]|\w+_messages\s*\[\s*-1\s*\]|\b(?:messages|loop_messages)\s*\|\s*last\b
      | \b[\w.]*last_(?:\w+_)?(?:idx|index|user|query)\w*\b|\b[\w.]*last_user\w*\b
      | loop\.index0?\s*[=<>!]=?\s*(?:\(?\s*)?(?:messages|loop_messages)\s*\|\s*(?:length|count)""",
    re.VERBOSE,
)
_THOUGHT = re.compile(r"think|reason|\banalysis\b|thought", re.IGNORECASE)
_SPLIT = re.compile(
    r"(?:split|partition|rsplit)\s*\(\s*['\"](?:</think(?:ing)?>|\[/THINK\]|<\|end_of_thought\|>|</reasoning>)['\"]"
)
_NEXT = re.compile(
    r"loop\.last\s+or\s+\(?\s*(?:not\s+)?\(?\s*\w*messages\s*\[\s*loop\.index0\s*\+\s*1|loop\.nextitem"
)
_TOOLS = re.compile(r"\btools?\b")


@dataclass(slots=True)
class _If:
    start: int
    test: str
    end: int
    in_messages: bool
    text: list[str] = field(default_factory=list)
    raises: bool = False
    branches: int = 1
    parent: _If | None = None


def operations(region: Region) -> tuple[HistoryOp, ...]:
    """What is done to old messages because of where the last one stands. Raises TemplateError."""
    sections = list(_sections(region.text))
    found: list[HistoryOp] = []
    thoughts = False
    tail = False
    for one in sections:
        if (
            not one.in_messages
            or not _LAST.search(one.test)
            or one.raises
            or _NEXT.search(one.test)
        ):
            continue
        body = " ".join(one.text)
        kind: HistoryOpKind = "tail_dependent"
        if _THOUGHT.search(body) or _THOUGHT.search(one.test):
            kind = "reasoning_stripped"
        elif "add_generation_prompt" in one.test or (
            one.branches == 1 and re.fullmatch(r"\s*(?:not\s+)?loop\.last\s*", one.test)
        ):
            continue  # what the end of the prompt looks like, not an old message
        if (kind == "reasoning_stripped" and thoughts) or (kind == "tail_dependent" and tail):
            continue
        thoughts |= kind == "reasoning_stripped"
        tail |= kind == "tail_dependent"
        where = region.slice(one.start, one.end)
        what = (
            "tools"
            if kind == "tail_dependent" and _TOOLS.search(one.test + body)
            else "thoughts"
            if kind == "reasoning_stripped"
            else "messages"
        )
        if where is not None:
            found.append(
                HistoryOp(
                    kind=kind, slice=where, detail=f"{what}: {' '.join(one.test.split())[:120]}"
                )
            )
    if not thoughts:
        cut = _cut(region)
        if cut is not None:
            found.insert(0, cut)
    return tuple(sorted(found, key=lambda o: o.slice))


def _cut(region: Region) -> HistoryOp | None:
    """A thought that is cut off and written nowhere."""
    written = any(
        t.kind == "var" and re.search(r"reasoning|thinking|thought", t.body)
        for t in tokens(region.text)
    )
    if written:
        return None
    for token in tokens(region.text):
        if token.kind in ("tag", "var") and _SPLIT.search(token.body):
            where = region.slice(token.start, token.end)
            if where is not None:
                return HistoryOp(
                    kind="reasoning_stripped",
                    slice=where,
                    detail=" ".join(token.body.split())[:120],
                )
    return None


def _sections(text: str) -> Iterator[_If]:
    """Every branch of every condition, with what it writes."""
    loops: list[bool] = []
    stack: list[_If] = []
    for token in tokens(text):
        if token.kind == "comment":
            continue
        if token.kind != "tag":
            for one in stack:
                one.text.append(token.body)
            if "raise_exception" in token.body and stack:
                stack[-1].raises = True
            continue
        word = token.body.split(None, 1)[0] if token.body.split() else ""
        if word == "for":
            head = _FOR.match(token.body)
            loops.append(
                bool(head and _MESSAGES.search(head["over"]) and "range" not in head["over"])
                or _by_index(token)
            )
        elif word == "endfor" and loops:
            loops.pop()
        elif word == "if":
            stack.append(_begin(token, loops))
        elif word == "elif" and stack:
            old = stack.pop()
            yield old
            new = _begin(token, loops)
            new.branches = 2
            stack.append(new)
        elif word == "else" and stack:
            stack[-1].branches += 1
        elif word == "endif" and stack:
            yield stack.pop()
        else:
            for one in stack:
                one.text.append(token.body)


def _begin(token: Token, loops: list[bool]) -> _If:
    test = token.body.split(None, 1)
    return _If(token.start, test[1] if len(test) > 1 else "", token.end, bool(loops and loops[-1]))


def _by_index(token: Token) -> bool:
    return re.search(r"range\s*\(\s*(?:0\s*,\s*)?\w*messages\s*\|\s*length", token.body) is not None
