"""OpenTelemetry GenAI spans: OTLP JSON, single spans, and what the console exporter prints.

The names of all generations: `gen_ai.input.messages` (from 2025-09), events
`gen_ai.user.message` and `gen_ai.content.prompt`, the numbered `gen_ai.prompt.0.content` of
OpenLLMetry, and OpenInference's `llm.input_messages.0.message.content`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentkv.trace.call import Call, Usage, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import (
    Record,
    count,
    items,
    loads,
    mapping,
    pick,
    seconds,
    text,
)
from agentkv.trace.readers.reading import Reading

NAME = "otel"

_SESSION = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "langsmith.metadata.thread_id",
    "thread.id",
)
_USER = ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id")
_PROMPT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.input_tokens.cached",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.details.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
)
_WRITTEN = (
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.input_tokens.cache_write",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.token_count.prompt_details.cache_write",
)
_MADE = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
)
_NOT_CHAT = ("embeddings", "execute_tool", "create_agent", "invoke_agent", "invoke_workflow")
_NUMBERED = re.compile(r"(gen_ai\.prompt|llm\.input_messages|llm\.tools)\.(\d+)\.(.+)")
_FUNCTIONS = re.compile(r"llm\.request\.functions\.(\d+)\.(.+)")


def matches(record: Record) -> bool:
    if any(k in record for k in ("resourceSpans", "resource_spans", "scopeSpans")):
        return True
    return "attributes" in record and any(
        k in record for k in ("traceId", "trace_id", "context", "spanId", "span_id", "kind")
    )


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    for span in _spans(record):
        attributes = _attributes(span.get("attributes"))
        call = _call(span, attributes, where, reading)
        if call is None:
            reading.problems.skipped["span of something else"] += 1
        else:
            yield call


def _spans(record: Record) -> Iterator[Record]:
    for resource in items(pick(record, "resourceSpans", "resource_spans")):
        yield from _spans(mapping(resource))
    for scope in items(pick(record, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")):
        for span in items(mapping(scope).get("spans")):
            if isinstance(span, dict):
                yield span
    if "attributes" in record:
        yield record


def _attributes(raw: Any) -> dict[str, Any]:
    if isinstance(raw, list):
        return {str(mapping(a).get("key")): _value(mapping(a).get("value")) for a in raw}
    return dict(mapping(raw))


def _value(raw: Any) -> Any:
    """An OTLP value: `{"stringValue": ..}` and its like."""
    value = mapping(raw)
    if "intValue" in value:  # 64 bits travel as text
        try:
            return int(value["intValue"])
        except (ValueError, TypeError):
            return None
    for key in ("stringValue", "boolValue", "doubleValue"):
        if key in value:
            return value[key]
    if "arrayValue" in value:
        return [_value(v) for v in items(mapping(value["arrayValue"]).get("values"))]
    if "kvlistValue" in value:
        return _attributes(items(mapping(value["kvlistValue"]).get("values")))
    return raw if not isinstance(raw, dict) else None


def _call(span: Record, found: Record, where: Where, reading: Reading) -> Call | None:
    operation = found.get("gen_ai.operation.name") or found.get("llm.request.type")
    if operation in _NOT_CHAT or found.get("openinference.span.kind", "LLM") != "LLM":
        return None
    if not any(k.startswith(("gen_ai.", "llm.")) for k in found):
        return None
    body, output = _body(span, found)
    if body is None:
        if not any(k in found for k in (*_PROMPT, "gen_ai.request.model", "llm.model_name")):
            return None
        raise NoRequest("the span has no messages (the capture of content is off)")
    context = mapping(span.get("context"))
    trace = text(pick(span, "traceId", "trace_id")) or text(context.get("trace_id"))
    start = pick(span, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
    status = mapping(span.get("status"))
    failed = str(pick(status, "code", "status_code") or "") in ("2", "STATUS_CODE_ERROR", "ERROR")
    said = text(pick(status, "message", "description")) or text(found.get("error.type"))
    wait = pick(found, "gen_ai.server.time_to_first_token", "gen_ai.response.time_to_first_chunk")
    return call_of(
        body,
        where,
        reading,
        output,
        Facts(
            id=text(found.get("gen_ai.response.id"))
            or text(pick(span, "spanId", "span_id"))
            or text(context.get("span_id")),
            time=seconds(start),
            session=text(pick(found, *_SESSION)) or trace,
            user=text(pick(found, *_USER)),
            provider=_provider(found),
            error=(said or "failed") if failed else None,
            usage=_usage(found),
            ttft_ms=wait * 1000.0 if isinstance(wait, (int, float)) else None,
        ),
    )


def _provider(found: Record) -> str | None:
    name = text(pick(found, "gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"))
    return None if name is None else _PROVIDERS.get(name.lower(), name.lower())


_PROVIDERS = {
    "aws.bedrock": "bedrock",
    "aws_bedrock": "bedrock",
    "gcp.gemini": "google",
    "gcp.vertex_ai": "google",
    "gcp.gen_ai": "google",
    "az.ai.openai": "azure",
    "azure.ai.openai": "azure",
    "mistral_ai": "mistral",
    "x_ai": "xai",
}


def _usage(found: Record) -> Usage:
    """By the convention, the input tokens count the cached ones in; some instrumentations pass on
    Anthropic's rest, which shows where it is smaller than what was read from the cache."""
    prompt, cached = count(pick(found, *_PROMPT)), count(pick(found, *_CACHED))
    written = count(pick(found, *_WRITTEN))
    if prompt is not None and cached is not None and cached > prompt:
        prompt += cached + (written or 0)
    return Usage(prompt, cached, written, count(pick(found, *_MADE)))


def _body(span: Record, found: Record) -> tuple[dict[str, Any] | None, Any]:
    messages = _messages(span, found)
    if messages is None:
        return None, None
    body: dict[str, Any] = {"messages": messages}
    model = pick(found, "gen_ai.request.model", "gen_ai.response.model", "llm.model_name")
    if model is not None:
        body["model"] = model
    system = loads(found.get("gen_ai.system_instructions"))
    if system is None:
        system = loads(found.get("gen_ai.system.instructions"))
    if system:
        body["system"] = system
    tools = loads(pick(found, "gen_ai.tool.definitions", "gen_ai.request.tools"))
    tools = tools if isinstance(tools, list) else _tools(found)
    if tools:
        body["tools"] = [loads(t) for t in tools]
    output = loads(pick(found, "gen_ai.output.messages", "gen_ai.completion", "output.value"))
    if isinstance(output, list):
        output = {"message": output[0]} if output else None
    if output is None:
        output = _reply(span, found)
    return body, output


def _messages(span: Record, found: Record) -> list[Any] | None:
    given = loads(pick(found, "gen_ai.input.messages", "gen_ai.prompt", "traceloop.entity.input"))
    if isinstance(given, dict) and isinstance(given.get("messages"), list):
        given = given["messages"]
    if isinstance(given, str) and given:
        return [{"role": "user", "content": given}]
    if isinstance(given, list):
        return given
    numbered = _numbered(found, ("gen_ai.prompt", "llm.input_messages"))
    if numbered:
        return numbered
    events = [_event(e) for e in items(span.get("events"))]
    return [e for e in events if e is not None and e["role"] != "choice"] or None


def _reply(span: Record, found: Record) -> Any:
    made = _numbered(found, ("gen_ai.completion", "llm.output_messages"))
    if made:
        return {"message": made[0]}
    for raw in items(span.get("events")):
        event = _event(raw)
        if event is not None and event["role"] == "choice":
            return {"message": {**event, "role": "assistant"}}
    return None


_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "choice",
}


def _event(raw: Any) -> dict[str, Any] | None:
    """An event that holds a message, as a message; None for every other."""
    event = mapping(raw)
    attributes = _attributes(event.get("attributes"))
    role = _ROLES.get(str(event.get("name")))
    if role is None:
        return None
    body = mapping(loads(attributes.get("body"))) or attributes
    inner = mapping(loads(body.get("message"))) or body
    return {
        "role": role,
        "content": _blocks(inner.get("content")),
        "tool_calls": loads(inner.get("tool_calls")),
    }


def _numbered(found: Record, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """`gen_ai.prompt.0.role`, `.content`, `.tool_calls.0.name` as messages."""
    made: dict[int, dict[str, Any]] = {}
    for name in names:
        for key, value in found.items():
            if not key.startswith(name + "."):
                continue
            index, _, rest = key[len(name) + 1 :].partition(".")
            if not index.isdigit():
                continue
            _put(made.setdefault(int(index), {}), rest.removeprefix("message."), value)
    return [made[i] for i in sorted(made)]


def _put(message: dict[str, Any], rest: str, value: Any) -> None:
    calls = re.fullmatch(r"tool_calls\.(\d+)\.(?:tool_call\.)?(.+)", rest)
    if calls:
        held = message.setdefault("tool_calls", [])
        while len(held) <= min(int(calls[1]), 999):
            held.append({})
        held[min(int(calls[1]), 999)][calls[2].removeprefix("function.")] = value
        return
    parts = re.fullmatch(r"contents\.(\d+)\.message_content\.(type|text)", rest)
    if parts:
        held = message.setdefault("content", [])
        if isinstance(held, list):
            while len(held) <= min(int(parts[1]), 9999):
                held.append({"type": "text"})
            held[min(int(parts[1]), 9999)][parts[2]] = value
        return
    message[rest] = _blocks(value) if rest == "content" else value


def _blocks(value: Any) -> Any:
    """Content blocks that travel as JSON text; a text that happens to be JSON stays a text."""
    opened = loads(value)
    typed = isinstance(opened, list) and all(mapping(b).get("type") for b in opened)
    return opened if typed else value


def _tools(found: Record) -> list[Any]:
    """Tools under numbered names, in their order."""
    made: dict[int, Any] = {}
    for key, value in found.items():
        if match := _FUNCTIONS.fullmatch(key):
            made.setdefault(int(match[1]), {})[match[2]] = loads(value)
        elif (match := _NUMBERED.fullmatch(key)) and match[1] == "llm.tools":
            made[int(match[2])] = loads(value)
    return [made[i] for i in sorted(made)]
