"""LiteLLM: its standard logging payload (callbacks, S3, GCS) and the rows of its spend log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import (
    Record,
    between_ms,
    loads,
    mapping,
    pick,
    seconds,
    session_of,
    text,
    user_of,
)
from agentkv.trace.readers.reading import Reading
from agentkv.trace.readers.usage import usage_of

NAME = "litellm"

_OWN = (
    "litellm_call_id",
    "custom_llm_provider",
    "litellm_params",
    "proxy_server_request",
    "litellm_trace_id",
    "standard_logging_object",
)


def matches(record: Record) -> bool:
    if any(k in record for k in _OWN):
        return True
    return "call_type" in record and any(k in record for k in ("messages", "startTime", "response"))


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    inner = record.get("standard_logging_object")
    if isinstance(inner, dict):
        record = inner
    kind = text(record.get("call_type")) or "completion"
    if not any(word in kind for word in ("completion", "responses", "messages", "generate")):
        reading.problems.skipped[f"{kind} call"] += 1
        return
    metadata = mapping(loads(record.get("metadata")))
    hidden = mapping(record.get("hidden_params"))
    start = pick(record, "startTime", "start_time")
    first = pick(record, "completionStartTime", "completion_start_time")
    failed = text(pick(record, "error_str", "exception"))
    if failed is None and record.get("status") == "failure":
        failed = text(mapping(record.get("error_information")).get("error_message")) or "failed"
    spent = pick(metadata, "usage_object") or pick(hidden, "usage_object")
    facts = Facts(
        id=text(pick(record, "id", "request_id", "litellm_call_id")),
        time=seconds(start),
        session=session_of(
            record,
            mapping(record.get("litellm_params")),
            metadata,
            mapping(metadata.get("requester_metadata")),
        ),
        user=text(record.get("end_user"))
        or text(metadata.get("user_api_key_end_user_id"))
        or user_of(record, metadata),
        model=text(record.get("model")),
        provider=text(record.get("custom_llm_provider")),
        error=failed,
        usage=usage_of(spent),
        ttft_ms=between_ms(start, first) if first != pick(record, "endTime", "end_time") else None,
    )
    call = call_of(_body(record), where, reading, loads(record.get("response")), facts)
    if call.usage == Usage():
        counted = usage_of({k: record.get(k) for k in ("prompt_tokens", "completion_tokens")})
        call = replace(call, usage=counted)
    yield call


def _body(record: Record) -> dict[str, Any]:
    """What was sent: the proxy's copy of the request, else the messages and the parameters."""
    sent = loads(record.get("proxy_server_request"))
    inner = mapping(sent).get("body", sent)
    if isinstance(inner, dict) and any(k in inner for k in ("messages", "input", "prompt")):
        return inner
    params = mapping(loads(pick(record, "model_parameters", "optional_params")))
    messages = loads(record.get("messages"))
    body: dict[str, Any] = {**params, "model": record.get("model")}
    if isinstance(messages, dict) and "messages" in messages:
        messages = messages["messages"]
    if isinstance(messages, list):
        body["messages"] = messages
    elif isinstance(messages, str) and messages:
        body["messages"] = [{"role": "user", "content": messages}]
    else:
        raise NoRequest("LiteLLM kept no messages (turn on store_prompts_in_spend_logs)")
    return body
