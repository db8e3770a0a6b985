"""LangSmith: runs as its client exports them, one a line, or trees with `child_runs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentkv.trace.call import Call, Where
from agentkv.trace.readers.exchange import Facts, NoRequest, call_of
from agentkv.trace.readers.fields import (
    Record,
    between_ms,
    items,
    loads,
    mapping,
    pick,
    seconds,
    session_of,
    text,
    user_of,
)
from agentkv.trace.readers.reading import Reading

NAME = "langsmith"

_PROVIDERS = {"google_genai": "google", "google_vertexai": "google", "amazon_bedrock": "bedrock"}


def matches(record: Record) -> bool:
    return isinstance(record.get("run_type"), str)


def calls(record: Record, where: Where, reading: Reading) -> Iterator[Call]:
    if record["run_type"] == "llm":
        yield _call(record, where, reading)
    else:
        reading.problems.skipped[f"{record['run_type']} run"] += 1
    for child in items(record.get("child_runs")):
        if isinstance(child, dict) and matches(child):
            yield from calls(child, where, reading)


def _call(run: Record, where: Where, reading: Reading) -> Call:
    extra = mapping(loads(run.get("extra")))
    metadata = mapping(extra.get("metadata"))
    params = mapping(extra.get("invocation_params"))
    inputs = mapping(loads(run.get("inputs")))
    start = run.get("start_time")
    provider = text(metadata.get("ls_provider"))
    facts = Facts(
        id=text(run.get("id")),
        time=seconds(start),
        # A run's own `session_id` is the project; the thread is in the metadata.
        session=session_of(metadata) or text(run.get("trace_id")),
        user=user_of(metadata),
        model=text(pick(metadata, "ls_model_name")),
        provider=_PROVIDERS.get(provider or "", provider),
        error=text(run.get("error")),
        ttft_ms=between_ms(start, run.get("first_token_time")),
    )
    return call_of(_body(inputs, params), where, reading, _reply(run), facts)


def _body(inputs: Record, params: Record) -> dict[str, Any]:
    """LangChain's `messages` is a batch of one; a traced SDK call has its own keyword arguments."""
    messages = inputs.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[0], list):
        if len(messages) > 1:
            raise NoRequest("the run holds several prompts at once")
        messages = messages[0] if not _is_pair(messages[0]) else messages
    body = {**params, **inputs}
    if isinstance(messages, list):
        body["messages"] = messages
    elif isinstance(inputs.get("prompts"), list) and inputs["prompts"]:
        body["prompt"] = inputs["prompts"][0]
    if "model" not in body and isinstance(params.get("model_name"), str):
        body["model"] = params["model_name"]
    return body


def _is_pair(value: Any) -> bool:
    """`["user", "text"]` is a message and no batch."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value)


def _reply(run: Record) -> Any:
    outputs = mapping(loads(run.get("outputs")))
    generations = items(outputs.get("generations"))
    while generations and isinstance(generations[0], list):
        generations = generations[0]
    if not generations:
        return outputs or None
    first = mapping(generations[0])
    message = mapping(first.get("message"))
    inner = mapping(message.get("kwargs")) or mapping(message.get("data")) or message
    usage = pick(inner, "usage_metadata")
    if usage is None:
        spent = mapping(outputs.get("llm_output"))
        usage = pick(spent, "token_usage", "usage") or pick(outputs, "usage_metadata")
    reply = {**inner} if inner else {"content": first.get("text")}
    meta = mapping(inner.get("response_metadata"))
    if isinstance(usage, dict):
        reply["usage"] = usage
    for field, keys in (("model", ("model_name", "model")), ("id", ("id",))):
        if (found := pick(meta, *keys)) is not None:
            reply[field] = found
    return reply
