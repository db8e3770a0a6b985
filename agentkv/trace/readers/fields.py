"""Small readings of untrusted JSON: a number, a time, a session. Nothing here raises."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

Record = Mapping[str, Any]
"""A JSON object of a log; its values are whatever somebody wrote."""

SESSION_KEYS = (
    "session_id",
    "sessionId",
    "session",
    "thread_id",
    "threadId",
    "thread",
    "conversation_id",
    "conversationId",
    "conversation",
    "chat_id",
    "chatId",
    "litellm_session_id",
)
TRACE_KEYS = ("trace_id", "traceId", "litellm_trace_id")
"""A trace is one run of an agent: the session of its calls, where nothing wider is named."""

USER_KEYS = ("user", "user_id", "userId", "end_user", "safety_identifier")
TIME_KEYS = (
    "timestamp",
    "time",
    "ts",
    "start_time",
    "startTime",
    "started_at",
    "request_time",
    "created_at",
    "createdAt",
    "startedDateTime",
    "created",
    "datetime",
    "date",
)


def text(value: Any) -> str | None:
    """A string that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def count(value: Any) -> int | None:
    """A number of tokens; None for everything that is not a whole number of at least 0."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else None


def mapping(value: Any) -> Record:
    """The object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """The array, or an empty one."""
    return value if isinstance(value, list) else []


def pick(record: Record, *keys: str) -> Any:
    """The first value that is there and not null."""
    for key in keys:
        value = record.get(key)
        if value is not None:
            return value
    return None


def dumps(value: Any) -> str:
    """JSON text with the keys in the order of the log; what blanks the log had does not matter."""
    return json.dumps(value, ensure_ascii=False)


def canonical(value: Any) -> str:
    """JSON text that does not depend on the order of keys: for settings, which are no text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def loads(value: Any) -> Any:
    """JSON inside a string is opened; a string that is no JSON stays as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def seconds(value: Any) -> float | None:
    """A point in time as seconds since the epoch; seconds, milli-, micro- and nanoseconds are told
    apart by their size, text is read as ISO 8601 (without a zone: UTC)."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        value = value.strip()
        try:
            value = float(value)
        except ValueError:
            return _iso(value)
    if not isinstance(value, (int, float)) or not 0 <= value < 1e20:
        return None  # also NaN
    for above, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if value >= above:
            return value / unit
    return float(value)


_ZONE = re.compile(r"\s*(?:UTC|GMT|Z)$")


def _iso(value: str) -> float | None:
    value = _ZONE.sub("+00:00", value)
    # fromisoformat takes 3 or 6 digits of a second at most before Python 3.12; spans write 9.
    value = re.sub(r"(\.\d{6})\d+", r"\1", value)
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def time_of(*records: Record) -> float | None:
    """The first time that one of the records names."""
    return next(
        (t for r in records for k in TIME_KEYS if (t := seconds(r.get(k))) is not None), None
    )


_CLAUDE_CODE = re.compile(r"session_([0-9a-f-]{36})$")


def session_of(*records: Record) -> str | None:
    """The thread, conversation or session that one of the records names; else the trace."""
    places = [*records, *(mapping(r.get("metadata")) for r in records)]
    for keys in (SESSION_KEYS, TRACE_KEYS):
        for place in places:
            if (found := _first_id(place, keys)) is not None:
                return found
    for place in places:  # this client keeps its session in the user's id
        if match := _CLAUDE_CODE.search(text(place.get("user_id")) or ""):
            return match[1]
    return None


def user_of(*records: Record) -> str | None:
    """Who the call was for, as one of the records names them."""
    places = [*records, *(mapping(r.get("metadata")) for r in records)]
    return next((u for p in places if (u := _first_id(p, USER_KEYS)) is not None), None)


def _first_id(place: Record, keys: Iterable[str]) -> str | None:
    for key in keys:
        value = place.get(key)
        if isinstance(value, Mapping):
            value = value.get("id")
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value:
            return value
    return None


def between_ms(start: Any, end: Any) -> float | None:
    """Milliseconds between two times; None where one of them is missing or they run backwards."""
    began, ended = seconds(start), seconds(end)
    if began is None or ended is None or ended < began:
        return None
    return round((ended - began) * 1000.0, 3)
