"""Mendings by the names that causes give them, applied to a copy of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from agentkv.trace.call import Call
from agentkv.trace.fixes.base import Mending
from agentkv.trace.fixes.forms import Forms, Json
from agentkv.trace.fixes.order import Order
from agentkv.trace.fixes.requests import History, Image, Model, Tools
from agentkv.trace.fixes.volatile import Volatile
from agentkv.trace.threads import Threads

MENDINGS: dict[str, Callable[[], Mending]] = {
    "model": Model,
    "tools": Tools,
    "image": Image,
    "reasoning": History,
    "history": History,
    "whitespace": lambda: Forms("whitespace", "unicode"),
    "json": Json,
    "documents": Order,
    "examples": Order,
    "order": Order,
    "locale": lambda: Forms("locale"),
    "question": Volatile,
    "volatile": Volatile,
}
"""By name, in the order in which they are applied. Some names are one mending."""

WORDS: dict[str, str] = {
    "model": "one model and one cache key for each call site",
    "tools": "all tools in every call, by name, in one form",
    "image": "pictures keep their first bytes",
    "reasoning": "thoughts stay in the answers that are sent back",
    "history": "append-only history",
    "whitespace": "white space and Unicode as they first were",
    "json": "JSON with sorted keys",
    "documents": "documents where they first stood",
    "examples": "examples in one order",
    "order": "lists in one order",
    "question": "the question behind the documents",
    "locale": "numbers and dates in one format",
    "volatile": "what changes behind what stays",
}


def fix_calls(calls: Callable[[], Iterable[Call]], names: Sequence[str]) -> Iterator[Call]:
    """The calls of a log with these mendings applied. `calls()` starts the log anew; it is read
    twice. Nothing is written anywhere. Raises KeyError for an unknown name."""
    unknown = [n for n in names if n not in MENDINGS]
    if unknown:
        raise KeyError(f"no mending is called {unknown[0]}; there are: {', '.join(MENDINGS)}.")
    makers = list(dict.fromkeys(MENDINGS[n] for n in MENDINGS if n in names))
    chain: list[Mending] = []
    for make in makers:
        mending = make()
        if isinstance(mending, (Tools, Volatile)):
            # It must learn of the calls as earlier mendings leave them. Those that learn nothing
            # start afresh: they remember the calls that they have seen.
            before = [
                m if isinstance(m, (Tools, Volatile)) else makers[i]() for i, m in enumerate(chain)
            ]
            for call, session, group in _placed(calls()):
                for one in before:
                    call = one.mend(call, session, group)
                mending.learn(call, session, group)
        chain.append(mending)
    for call, session, group in _placed(calls()):
        for mending in chain:
            call = mending.mend(call, session, group)
        yield call


def _placed(calls: Iterable[Call]) -> Iterator[tuple[Call, str, str]]:
    threads = Threads()
    for call in calls:
        place = threads.place(call)
        yield call, place.session, place.group
