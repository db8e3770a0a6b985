"""Request logs of many kinds, read as one stream of calls.

`read` finds the format of each line for itself, so that mixed logs work; it holds one line at a
time, and never raises for a bad one: `Problems` has the account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentkv.trace.call import Call, Where
from agentkv.trace.readers import logs
from agentkv.trace.readers.exchange import NoRequest
from agentkv.trace.readers.fields import Record, items, mapping
from agentkv.trace.readers.files import check, is_pipe, name_of
from agentkv.trace.readers.lines import values
from agentkv.trace.readers.logs import batch, request
from agentkv.trace.readers.problems import LogError, Problem, Problems
from agentkv.trace.readers.reading import Reading
from agentkv.trace.readers.replies import reply_of
from agentkv.trace.readers.wire import protocol_of

__all__ = ["LogError", "Problem", "Problems", "formats", "read", "read_record"]

_LISTS = (
    "runs",
    "observations",
    "traces",
    "entries",
    "items",
    "records",
    "requests",
    "calls",
    "logs",
    "results",
    "data",
    "rows",
    "spans",
)
"""Where an export that is one object keeps its records."""


def formats() -> tuple[str, ...]:
    """What `format=` of `read` may be."""
    return logs.names()


def read(
    paths: Sequence[str | Path], *, format: str | None = None, problems: Problems | None = None
) -> Iterator[Call]:
    """The calls of some logs, in the order of the files and lines.

    A path is a file, plain, gzip or zstd (told by its first bytes), or `-` for stdin. `format`: one
    of `formats()`, for every line; without it each line's own is found. A file with the replies of
    a batch is read before the requests, wherever it is named.

    Raises LogError, before anything is read, for a file that cannot be opened and for a format that
    does not exist. Bad lines are counted in `problems` and left out.
    """
    chosen = None
    if format is not None:
        if format not in formats():
            raise LogError(f"no log format is called {format}; there are {', '.join(formats())}")
        chosen = next((f for f in logs.FORMATS if format == f.NAME), request)
    for path in paths:
        check(path)
    account = problems if problems is not None else Problems()
    return _read(_replies_first(list(paths)), chosen, Reading(account))


def _read(paths: list[str | Path], chosen: logs.Format | None, reading: Reading) -> Iterator[Call]:
    for path in paths:
        calls = reading.problems.calls
        bad = reading.problems.bad
        for line, value in values(path, reading.problems):
            yield from read_record(value, Where(name_of(path), line), reading, chosen)
        if reading.problems.calls == calls and reading.problems.bad == bad:
            if reading.problems.skipped.get("reply of a batch"):
                continue  # what is left of them is counted at the end
            reading.problems.add(
                "no call", name_of(path), 0, "the log has records, but none is a call of a model"
            )
    if paths:
        _unclaimed(reading, name_of(paths[0]))


def _unclaimed(reading: Reading, name: str) -> None:
    """Replies of a batch whose requests are in none of the logs: no prompt, so no calls."""
    if left := len(reading.replies):
        why = f"{left} replies of a batch have no request in these logs; name the file of requests too"
        reading.problems.add("reply only", name, 0, why)


def read_record(
    value: Any, where: Where, reading: Reading, chosen: logs.Format | None = None
) -> Iterator[Call]:
    """The calls of one JSON value of a log; what is wrong with it goes into the account."""
    for record in _records(value, chosen):
        form = chosen or logs.format_of(record)
        problems = reading.problems
        if form is None:
            problems.add(*_unknown(record, where))
            continue
        try:
            for call in form.calls(record, where, reading):
                problems.calls += 1
                problems.formats[form.NAME if form is not request else _protocol(record)] += 1
                yield call
        except NoRequest as error:
            problems.add("no request", where.file, where.line, str(error))
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            IndexError,
            RecursionError,
        ) as error:
            # A shape that no reader foresaw: the line is lost, and the log is not.
            why = f"a {form.NAME} record in an odd shape ({type(error).__name__}: {error})"
            problems.add("odd shape", where.file, where.line, why[:200])


def _protocol(record: Record) -> str:
    return protocol_of(record) or request.NAME


def _records(value: Any, chosen: logs.Format | None) -> Iterator[Record]:
    """The records in a value: itself, the elements of a list, the content of an export's frame."""
    if isinstance(value, list):
        if value and all(isinstance(v, dict) and {"role", "from"} & v.keys() for v in value):
            yield {"messages" if "role" in value[0] else "conversations": value}
            return
        for element in value:
            yield from _records(element, chosen)
        return
    if not isinstance(value, dict):
        yield {"": value}
        return
    if chosen is None and logs.format_of(value) is None:
        inner = mapping(value.get("log")) or value  # HAR
        for key in _LISTS:
            found = items(inner.get(key))
            if found and all(isinstance(v, (dict, list)) for v in found):
                for element in found:
                    yield from _records(element, chosen)
                return
    yield value


def _unknown(record: Record, where: Where) -> tuple[str, str, int, str]:
    if "" in record:
        return "unknown format", where.file, where.line, "JSON, but no object"
    if any(k in record for k in ("choices", "candidates", "usage")) and reply_of(record).seen:
        why = "a reply without its request: there is no prompt in it"
        return "reply only", where.file, where.line, why
    keys = ", ".join(str(k)[:40] for k in list(record)[:8])
    return "unknown format", where.file, where.line, f"in no format that is known (keys: {keys})"


def _replies_first(paths: list[str | Path]) -> list[str | Path]:
    if len(paths) < 2:
        return paths
    return sorted(paths, key=lambda path: not _has_replies(path))


def _has_replies(path: str | Path) -> bool:
    if is_pipe(path):
        return False  # it can be read only once
    for _, value in values(path, Problems()):
        return isinstance(value, dict) and batch.is_reply(value)
    return False
