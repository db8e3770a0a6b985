"""`--record`: a line for each call that the server ran (its shape is in `agentkv.engine.recording`).

Lines are made and written on a thread of their own: neither digests nor a slow disk hold up the
event loop, and no answer depends on them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from agentkv.engine.chat import Chat
from agentkv.engine.record_file import RecordFile
from agentkv.engine.recording import VERSION, Digests, message_digest, miss_row, span_rows
from agentkv.engine.serve.protocol import ChatRequest, CompletionRequest, GenerateRequest
from agentkv.engine.serve.usage import written
from agentkv.engine.text.calls.answer import Answer
from agentkv.engine.text.canonical import canonical_json, canonical_tools
from agentkv.engine.types import CacheFacts, RenderedPrompt, RequestOutput

if TYPE_CHECKING:
    from agentkv.engine.serve.job import Call

ABORTED = "aborted"
"""The error of a call that was given up before it was known what it reuses."""

_PRIVATE = ("cache_salt", "agentkv")
"""Fields of a body that no recording has: a salt is a secret, and the session has a field."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the engine is not told of an HTTP request: its body, when it came, and how the answer of
    a chat is read."""

    body: ChatRequest | CompletionRequest | GenerateRequest
    tenant: str | None = None
    """Whose key it came with, where there are several."""
    chat: Chat | None = None
    time: float = field(default_factory=time.time)


class Recorder:
    """Writes `path`. `with_text`: also prompts and answers. Raises OSError when it cannot."""

    def __init__(
        self, path: str | os.PathLike[str], *, with_text: bool = False, key: bytes | None = None
    ) -> None:
        self.file = RecordFile(path, background=True)
        self.with_text = with_text
        self._digests = Digests(key)

    def finished(self, asked: Asked, number: int, call: Call, output: RequestOutput) -> None:
        """Call `number` of a request has ended, in whatever way the engine ends calls."""
        self.file.write(lambda: self._finished(asked, number, call, output))

    def failed(
        self,
        asked: Asked,
        number: int,
        call: Call,
        *,
        request_id: str,
        model: str,
        error: str | None,
        facts: CacheFacts | None = None,
    ) -> None:
        """A call did not end by itself. `error`: None for one that the client left after `facts`
        were known: what it had computed is in the cache."""

        def make() -> dict[str, Any]:
            line = self._line(asked, number, call, request_id, model)
            line["error"] = error
            if facts is not None:
                self._facts(line, facts, call.session)
            if error is None:
                line["finish_reason"] = "abort"
            return line

        self.file.write(make)

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.file.close()

    # -- on the file's thread

    def _finished(
        self, asked: Asked, number: int, call: Call, output: RequestOutput
    ) -> dict[str, Any]:
        line = self._line(asked, number, call, output.request_id, output.model)
        line["finish_reason"] = output.finish_reason
        if never_ran(output):
            line["error"] = ABORTED
            return line
        self._facts(line, output.cache, call.session)
        times = output.times
        line["completion_tokens"] = output.completion_tokens
        line["ms"] = {
            "queue": round(times.queue, 3),
            "prefill": round(times.prefill, 3),
            "ttft": round(times.ttft, 3),
            "decode": round(times.decode, 3),
        }
        line["ttft_ms"] = round(times.ttft, 3)
        answers = [
            asked.chat.read(c.text, c.token_ids, c.index) if asked.chat else Answer(c.text)
            for c in output.choices
        ]
        # With several choices nobody knows which one the client goes on with.
        if asked.chat is not None and len(answers) == 1:
            said = _digest(answers[0])
            line["answer"] = [self._digests.content(said), len(output.choices[0].token_ids)]
        if self.with_text:
            line["reply"] = _reply(asked, output, answers)
        return line

    def _line(
        self, asked: Asked, number: int, call: Call, request_id: str, model: str
    ) -> dict[str, Any]:
        body, ids = asked.body, call.prompt_ids
        spans = call.prompt.spans if isinstance(call.prompt, RenderedPrompt) else ()
        line: dict[str, Any] = {
            "agentkv": VERSION,
            "source": "serve",
            "id": request_id,
            "time": round(asked.time, 6),
            "session": call.session,
            "user": getattr(body, "user", None),
            "model": model,
            "provider": "agentkv",
            "salt": self._digests.salt(call.salt),
            "tokenizer": "exact",
            "prompt_tokens": len(ids),
            "cached_tokens": None,
            "written_tokens": None,
            "completion_tokens": None,
            "finish_reason": None,
            "error": None,
            "spans": span_rows(ids, spans, self._digests, _tools(body)),
            "answer": None,
            "miss": None,
        }
        if self.with_text:
            line["text"] = _text(body, number, model)
        return line

    def _facts(self, line: dict[str, Any], facts: CacheFacts, session: str | None) -> None:
        line["prompt_tokens"] = facts.prompt_tokens
        line["cached_tokens"] = facts.cached_tokens
        line["cached_by_tier"] = dict(facts.cached_by_tier)
        line["written_tokens"] = written(facts)
        line["page_size"] = facts.page_size
        # Without a session, what stood there before may be another client's.
        line["miss"] = miss_row(facts.miss, quote=self.with_text and session is not None)


def never_ran(output: RequestOutput) -> bool:
    """Whether a call was aborted while it waited: its cache facts are no measurement."""
    return output.finish_reason == "abort" and output.times.prefill == 0


def _tools(body: Any) -> Sequence[tuple[str, str]]:
    tools = body.tools if isinstance(body, ChatRequest) and body.tools else ()
    return [(t["function"]["name"], canonical_json(t)) for t in canonical_tools(tools)]


def _digest(answer: Answer) -> str:
    calls = [(call.name, call.arguments) for call in answer.tool_calls]
    return message_digest(answer.text, answer.reasoning, calls)


def _text(body: Any, number: int, model: str) -> dict[str, Any]:
    """The request as an OpenAI body; of one that has several prompts, the one of this call."""
    if isinstance(body, GenerateRequest):
        given = body.text if body.text is not None else body.input_ids
        return {"model": model, "prompt": _nth(given, number)}
    sent = {k: v for k, v in msgspec.to_builtins(body).items() if v is not None}
    sent = {k: v for k, v in sent.items() if k not in _PRIVATE}
    if isinstance(body, CompletionRequest):
        sent["prompt"] = _nth(body.prompt, number)
    return {"model": model, **sent}


def _nth(given: Any, number: int) -> Any:
    many = isinstance(given, list) and given and not isinstance(given[0], int)
    return given[number] if many else given


def _reply(asked: Asked, output: RequestOutput, answers: Sequence[Answer]) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    for choice, answer in zip(output.choices, answers, strict=True):
        said: dict[str, Any] = {"index": choice.index, "finish_reason": choice.finish_reason}
        if asked.chat is None:
            choices.append({**said, "text": answer.text})
            continue
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.tool_calls
            ]
        choices.append({**said, "message": message})
    return {"model": output.model, "choices": choices}
