"""Mendings by the names that causes give them, applied to a copy of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from agentkv.trace.call import Call
from agentkv.trace.fixes.base import Mending
from agentkv.trace.fixes.requests import History, Image, Model, Tools
from agentkv.trace.fixes.texts import Blocks, Json, Volatile, Whitespace
from agentkv.trace.threads import Threads

MENDINGS: dict[str, Callable[[], Mending]] = {
    "model": Model,
    "tools": Tools,
    "image": Image,
    "reasoning": History,
    "history": History,
    "whitespace": Whitespace,
    "json": Json,
    "documents": Blocks,
    "examples": Blocks,
    "order": Blocks,
    "question": Volatile,
    "locale": Volatile,
    "volatile": Volatile,
}
"""By name, in the order in which they are applied. Some names are one mending."""

WORDS: dict[str, str] = {
    "model": "one model and one cache key for each conversation",
    "tools": "all tools in every call, by name, in one form",
    "image": "pictures keep their first bytes",
    "reasoning": "thoughts stay in the answers that are sent back",
    "history": "append-only history",
    "whitespace": "white space and Unicode in one form",
    "json": "JSON with sorted keys",
    "documents": "documents where they first stood",
    "examples": "examples in one order",
    "order": "lists in one order",
    "question": "the question behind the documents",
    "locale": "numbers and dates behind the fixed text",
    "volatile": "what changes behind what stays",
}


def fix_calls(calls: Callable[[], Iterable[Call]], names: Sequence[str]) -> Iterator[Call]:
    """The calls of a log with these mendings applied. `calls()` starts the log anew; it is read
    twice. Nothing is written anywhere. Raises KeyError for an unknown name."""
    made: dict[Callable[[], Mending], Mending] = {}
    for name in MENDINGS:
        if name in names and MENDINGS[name] not in made:
            made[MENDINGS[name]] = MENDINGS[name]()
    unknown = [n for n in names if n not in MENDINGS]
    if unknown:
        raise KeyError(f"no mending is called {unknown[0]}; there are: {', '.join(MENDINGS)}.")
    chain = list(made.values())
    # What an earlier mending changes, a later one must learn of in its changed form.
    for depth, mending in enumerate(chain):
        if not isinstance(mending, (Tools, Volatile)):
            continue
        before = [type(m)() for m in chain[:depth] if not isinstance(m, (Tools, Volatile))]
        fixed = [m for m in chain[:depth] if isinstance(m, (Tools, Volatile))]
        for call, session, group in _placed(calls()):
            for one in [*before, *fixed]:
                call = one.mend(call, session, group)
            mending.learn(call, session, group)
    for call, session, group in _placed(calls()):
        for mending in chain:
            call = mending.mend(call, session, group)
        yield call


def _placed(calls: Iterable[Call]) -> Iterator[tuple[Call, str, str]]:
    threads = Threads()
    for call in calls:
        place = threads.place(call)
        yield call, place.session, place.group
