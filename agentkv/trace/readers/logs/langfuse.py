"""Langfuse: observations of its export or API, one a line, or traces with `observations`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers.exchange import Facts, call_of
from agentkv.trace.readers.fields import (
    Record,
    between_ms,
    count,
    loads,
    mapping,
    pick,
    seconds,
    session_of,
    text,
    user_of,
)
from agentkv.trace.readers.reading import Reading

NAME = "langfuse"

_CALLS = ("GENERATION",)
_OTHERS = (
    "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"
)  # fmt: skip
_CACHED = (
    "input_cached_tokens",
    "cache_read_input_tokens",
    "input_cache_read",
    "input_cached_content_token_count",
)
_WRITTEN = ("cache_creation_input_tokens", "input_cache_creation")


def matches(record: Record) -> bool:
    if isinstance(record.get("observations"), list):
        return True
    kind = record.get("type")
    return (
        isinstance(kind, str)
        and kind.upper() in (*_CALLS, *_OTHERS)
        and any(k in record for k in ("traceId", "trace_id", "usageDetails", "usage_details"))
    )


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    if isinstance(record.get("observations"), list):
        for observation in record["observations"]:
            if isinstance(observation, dict):
                yield from _calls(observation, record, where, reading)
    else:
        yield from _calls(record, {}, where, reading)


def _calls(raw: Record, trace: Record, where: Where, reading: Reading) -> Iterator[Call]:
    kind = str(raw.get("type", "")).upper()
    if kind not in _CALLS:
        reading.problems.skipped[f"{kind.lower() or 'unnamed'} observation"] += 1
        return
    start = pick(raw, "startTime", "start_time")
    failed = text(pick(raw, "statusMessage", "status_message"))
    facts = Facts(
        id=text(raw.get("id")),
        time=seconds(start),
        session=session_of(raw, trace) or text(trace.get("id")),
        user=user_of(raw, trace),
        model=text(pick(raw, "model", "providedModelName")),
        error=(failed or "failed") if raw.get("level") == "ERROR" else None,
        usage=_usage(raw),
        ttft_ms=between_ms(start, pick(raw, "completionStartTime", "completion_start_time")),
    )
    yield call_of(_body(raw), where, reading, loads(raw.get("output")), facts)


def _body(raw: Record) -> Any:
    """`input` is a list of messages, an object with messages and tools, or plain text."""
    given = loads(raw.get("input"))
    params = mapping(loads(pick(raw, "modelParameters", "model_parameters")))
    if isinstance(given, list):
        # The JS and LangChain integrations put the tools at the end, as messages of role "tool".
        tools = [m["content"] for m in given if _is_tool(m)]
        body: dict[str, Any] = {"messages": [m for m in given if not _is_tool(m)]}
        if tools:
            body["tools"] = tools
    elif isinstance(given, dict):
        body = dict(given) if "role" not in given else {"messages": [given]}
    elif isinstance(given, str):
        body = {"messages": [{"role": "user", "content": given}]}
    else:
        return None
    return {**params, **body}


def _is_tool(message: Any) -> bool:
    content = mapping(message).get("content")
    return (
        mapping(message).get("role") == "tool"
        and isinstance(content, dict)
        and content.get("type") == "function"
    )


def _usage(raw: Record) -> Usage:
    """`input` is what is left of the prompt after the named kinds were taken out of it."""
    details = mapping(loads(pick(raw, "usageDetails", "usage_details")))
    usage = mapping(raw.get("usage"))
    cached, written = count(pick(details, *_CACHED)), count(pick(details, *_WRITTEN))
    if details:
        prompt = _sum(v for k, v in details.items() if "input" in k or k in (*_CACHED, *_WRITTEN))
        answer = _sum(v for k, v in details.items() if "output" in k)
        whole = count(details.get("total"))
        if whole is not None and prompt is not None and whole - (answer or 0) < prompt:
            prompt = whole - (answer or 0)  # a client that left the cached tokens in `input`
        return Usage(prompt, cached, written, answer)
    return Usage(
        count(pick(usage, "input", "promptTokens", "prompt_tokens")),
        None,
        None,
        count(pick(usage, "output", "completionTokens", "completion_tokens")),
    )


def _sum(values: Iterable[Any]) -> int | None:
    """The sum of the counts among the values; None where there is none."""
    found = [n for v in values if (n := count(v)) is not None]
    return sum(found) if found else None
