"""Recorded HTTP: a request and its response under whatever names, raw streams included; a HAR entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentkv.trace.call import Call, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import (
    Record,
    between_ms,
    loads,
    mapping,
    pick,
    session_of,
    text,
    time_of,
    user_of,
)
from agentkv.trace.readers.reading import Reading
from agentkv.trace.readers.replies import reply_of
from agentkv.trace.readers.usage import usage_of
from agentkv.trace.readers.wire import protocol_of

NAME = "http"

_REQUEST = (
    "request",
    "req",
    "request_body",
    "providerRequest",
    "reqPayload",
    "requestBody",
    "raw_request",
    "kwargs",
    "payload",
    "body",
    "params",
    "data",
    "inputs",
    "event",
)
_RESPONSE = (
    "response",
    "resp",
    "response_body",
    "providerResponse",
    "respPayload",
    "responseBody",
    "raw_response",
    "reply",
    "result",
    "completion",
    "output",
    "outputs",
    "chunks",
)
_INVOCATION = "ModelInvocationLog"


def matches(record: Record) -> bool:
    if record.get("schemaType") == _INVOCATION:
        return True
    if protocol_of(record) is not None:
        return False
    return _request(record) is not None


def _request(record: Record) -> Record | None:
    """The object that is, or frames, the request: one with a body that is known, else the first."""
    framed: Record | None = None
    for key in _REQUEST:
        value = loads(record.get(key))
        if isinstance(value, dict):
            if protocol_of(value) is not None:
                return value
            framed = framed if framed is not None else value
    return framed


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    if record.get("schemaType") == _INVOCATION:
        yield _invocation(record, where, reading)
        return
    request = mapping(_request(record))
    response = pick(record, *_RESPONSE)
    url = text(pick(record, "url", "uri", "endpoint", "path")) or text(request.get("url")) or ""
    status = pick(record, "status_code", "statusCode", "status", "http_status")
    body: Any = request
    if protocol_of(request, url) is None:
        inner = _body(request)
        body = inner if inner is not None else request
    answer = loads(response)
    if isinstance(answer, dict) and protocol_reply(answer) is False:
        status = status if status is not None else pick(answer, "status", "status_code")
        answer = _body(answer)
    if not isinstance(body, dict) and url and not _is_model(url):
        reading.problems.skipped["other HTTP request"] += 1
        return
    yield call_of(
        body,
        where,
        reading,
        answer,
        Facts(
            url=url,
            status=status,
            id=text(pick(record, "id", "request_id", "requestId")),
            time=time_of(record, request),
            session=session_of(record, mapping(body), _headers(request), _headers(record)),
            user=user_of(record),
            error=_error(record.get("error")),
            usage=usage_of(pick(record, "usage", "usage_metadata", "token_usage")),
            ttft_ms=_ttft(record),
        ),
    )


def _error(raw: Any) -> str | None:
    return text(raw) or text(mapping(raw).get("message"))


def _headers(frame: Record) -> Record:
    """Headers that name a session, under the keys that a body would use."""
    raw = frame.get("headers")
    pairs = (
        [(mapping(h).get("name"), mapping(h).get("value")) for h in raw]
        if isinstance(raw, list)
        else list(mapping(raw).items())
    )
    found: dict[str, str] = {}
    for name, value in pairs:
        word = str(name).lower().removeprefix("x-").replace("-", "_")
        for key in ("session_id", "conversation_id", "thread_id", "trace_id"):
            if word.endswith(key) and isinstance(value, str):
                found[key] = value
    return found


def _ttft(record: Record) -> float | None:
    value = pick(record, "ttft_ms", "time_to_first_token_ms")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return between_ms(record.get("start_time"), record.get("first_token_time"))


def protocol_reply(answer: Record) -> bool:
    """Whether an object is the body of a reply, and not a frame around one."""
    framed = any(k in answer for k in ("body", "text", "content")) and any(
        k in answer for k in ("status", "status_code", "headers", "httpVersion")
    )
    return not (framed and "choices" not in answer and "usage" not in answer)


def _body(frame: Record) -> Any:
    """The body inside a frame: `body`, `json`, a HAR's `postData.text` or `content.text`."""
    found = pick(
        frame, "body", "json", "json_body", "parsed_body", "data", "content", "postData", "text"
    )
    if isinstance(found, dict) and isinstance(found.get("text"), str):
        found = found["text"]
    if isinstance(found, dict) and isinstance(found.get("string"), str):  # a cassette of VCR
        found = found["string"]
    return loads(found)


def _is_model(url: str) -> bool:
    path = url.split("?")[0]
    return any(
        word in path
        for word in (
            "completions",
            "messages",
            "responses",
            "generate",
            "/chat",
            "converse",
            "invoke",
        )
    )


def _invocation(record: Record, where: Where, reading: Reading) -> Call:
    """Bedrock's own log of model invocations."""
    given, made = mapping(record.get("input")), mapping(record.get("output"))
    body = loads(given.get("inputBodyJson"))
    if not isinstance(body, dict):
        raise NoRequest("Bedrock left the body out of the log (too large, or kept in S3)")
    operation = str(record.get("operation", ""))
    url = "https://bedrock-runtime.amazonaws.com/model/x/" + (
        "converse" if operation.startswith("Converse") else "invoke"
    )
    counted = {
        k: v for source in (given, made) for k, v in source.items() if k.endswith("TokenCount")
    }
    whole = reply_of({"usage": counted}).usage
    return call_of(
        body,
        where,
        reading,
        made.get("outputBodyJson"),
        Facts(
            url=url,
            id=text(record.get("requestId")),
            time=time_of(record),
            session=session_of(
                mapping(record.get("requestMetadata")), mapping(body.get("requestMetadata"))
            ),
            user=text(mapping(record.get("identity")).get("arn")),
            model=text(record.get("modelId")),
            provider="bedrock",
            usage=whole,
            error=text(record.get("errorCode")),
        ),
    )
