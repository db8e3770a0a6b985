"""What `CacheReportHandler(record=...)` writes of a call; the shape is in `agentkv.engine.recording`.

The prompt is recorded as it was *sent* where the model is ours (behind the layout: what that has
mended must not be reported as lost), and as LangChain was given it otherwise. No tokenizer is known
here, so the token numbers of spans are estimates; the counts are those of whoever answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages

from agentkv.client.base import ChatRequest
from agentkv.client.errors import AgentKVError
from agentkv.engine.recording import VERSION, Digests, span_rows
from agentkv.langchain.messages import to_dicts
from agentkv.langchain.record_parts import estimated, ids_of, message_parts
from agentkv.langchain.rows import CallRow
from agentkv.langchain.usage import PROVIDER

if TYPE_CHECKING:
    from agentkv.report.report import CacheReport

SETTINGS = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning",
    "reasoning_effort",
    "thinking",
    "cache_control",
    "prompt_cache_key",
    "prompt_cache_retention",
)
"""What another provider may render into a prompt, or key its cache by."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request, before it is known how it ends. `messages`: LangChain's, or OpenAI-style dicts
    of a request that was laid out; `prompt`: of a text model. `time`: seconds since the epoch."""

    time: float
    messages: tuple[BaseMessage | Mapping[str, Any], ...] = ()
    prompt: str | None = None
    tools: tuple[Any, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    session: str | None = None
    salt: str | None = None

    @classmethod
    def given(
        cls,
        time: float,
        params: Mapping[str, Any],
        *,
        messages: Sequence[BaseMessage] = (),
        prompt: str | None = None,
    ) -> Sent:
        """What LangChain tells a handler when a call begins."""
        tools = params.get("tools") or params.get("functions") or ()
        settings = {name: params[name] for name in SETTINGS if params.get(name) is not None}
        return cls(time, tuple(messages), prompt, tuple(tools), settings)

    @classmethod
    def laid_out(cls, time: float, request: ChatRequest) -> Sent:
        """What a chat model of ours sends. Its settings never change a prompt."""
        return cls(
            time,
            tuple(request.messages),
            tools=tuple(request.tools),
            session=request.session,
            salt=request.salt,
        )

    @property
    def body(self) -> dict[str, Any]:
        """As an OpenAI body."""
        if self.prompt is not None:
            return {"prompt": self.prompt}
        body: dict[str, Any] = {"messages": _dicts(self.messages)}
        if self.tools:
            body["tools"] = list(self.tools)
        return body


def note_sent(run_manager: Any, request: ChatRequest) -> None:
    """Tell the handlers of a run, where they record, what is really sent."""
    for handler in getattr(run_manager, "handlers", ()):
        told = getattr(handler, "on_request", None)
        if told is not None:
            told(request, run_id=run_manager.run_id)


def line_of(
    row: CallRow,
    sent: Sent,
    answer: BaseMessage | str | None,
    meta: Mapping[str, Any],
    digests: Digests,
    *,
    with_text: bool,
) -> dict[str, Any]:
    """One line. `answer`: the model's message, or text; None where there is none. `meta`: the
    metadata of the run."""
    body = sent.body
    ids, spans, tools = estimated(body)
    provider = str(meta.get("ls_provider") or "unknown")
    session = row.thread or sent.session or meta.get("session_id") or meta.get("conversation_id")
    user = meta.get("user_id")
    line: dict[str, Any] = {
        "agentkv": VERSION,
        "source": "langchain",
        "id": str(row.run_id),
        "time": round(sent.time, 6),
        "session": str(session) if session else None,
        "user": str(user) if user else None,
        "model": row.model,
        "provider": provider,
        "salt": digests.salt(sent.salt),
        "node": row.node or None,
        "tokenizer": "estimate",
        "prompt_tokens": None,
        "cached_tokens": None,
        "written_tokens": None,
        "completion_tokens": None,
        "error": row.error,
        "spans": span_rows(ids, spans, digests, tools),
        "answer": _answer(answer, digests),
        "miss": None,
    }
    if sent.settings:
        line["settings"] = {k: _setting(v, digests) for k, v in sent.settings.items()}
    if row.report is not None:
        line |= _facts(row.report, ours=provider == PROVIDER, quote=with_text)
    if with_text:
        line["text"] = {"model": row.model, **body, **sent.settings}
        line["reply"] = _reply(answer)
    return line


def _facts(report: CacheReport, *, ours: bool, quote: bool) -> dict[str, Any]:
    said = report.prompt_tokens > 0
    facts: dict[str, Any] = {
        "prompt_tokens": report.prompt_tokens if said else None,
        "cached_tokens": report.cached_tokens if said and report.cached_known else None,
        "written_tokens": report.created_tokens if ours else report.written_tokens,
        "completion_tokens": report.completion_tokens,
    }
    if ours:
        facts["page_size"] = report.page_size
        facts["ms"] = dict(report.ms)
        facts["ttft_ms"] = report.ms.get("ttft")
    miss = report.miss
    if miss is not None:
        names = ("token", "reason", "segment", "detail", *(("was", "now") if quote else ()))
        facts["miss"] = {name: getattr(miss, name) for name in names}
    return facts


def _setting(value: Any, digests: Digests) -> Any:
    """Short names as they are; schemas and keys as digests."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 16):
        return value
    return digests.text(value if isinstance(value, str) else json.dumps(value, default=str))


def _dicts(messages: Sequence[BaseMessage | Mapping[str, Any]]) -> list[dict[str, Any]]:
    if all(isinstance(m, Mapping) for m in messages):
        return [dict(m) for m in messages if isinstance(m, Mapping)]
    ours = [m for m in messages if isinstance(m, BaseMessage)]
    try:
        return to_dicts(ours)
    except AgentKVError:  # images and the like, which our engine does not read
        found = convert_to_openai_messages(ours)
        return found if isinstance(found, list) else [found]


def _answer(answer: BaseMessage | str | None, digests: Digests) -> list[Any] | None:
    if isinstance(answer, str):
        return None  # of a text model: no message will hold it
    if answer is None:
        return None
    parts = message_parts(0, _dicts([answer])[0], "history")
    if len(parts) != 1:
        return None
    tokens = len(ids_of(parts[0].text))
    return [digests.content(parts[0].digest), tokens] if tokens else None


def _reply(answer: BaseMessage | str | None) -> dict[str, Any] | None:
    if answer is None:
        return None
    if isinstance(answer, str):
        return {"choices": [{"index": 0, "text": answer}]}
    return {"choices": [{"index": 0, "message": _dicts([answer])[0]}]}


def text_of(answer: Any) -> BaseMessage | str | None:
    """The message of a chat model's generation, or the text of another's."""
    message = getattr(answer, "message", None)
    if isinstance(message, AIMessage):
        return message
    text = getattr(answer, "text", None)
    return text if isinstance(text, str) else None
