"""`CacheReportHandler` and `cache_report()`: what the model calls of a run reused, and where not.

    with cache_report() as r:
        agent.invoke(...)
    print(r.hit_rate, r.by_node(), r.misses())

One handler sees every call below the run it is given to, whatever model makes it: agentkv's own
with their full reports, others with the counts in their usage. LangChain's response cache replays
a stored message with its old usage; such an answer is booked apart, since no engine worked.

With `record="run.jsonl"` every call is also a line of a file that `agentkv trace` reads.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers.context import register_configure_hook

from agentkv.client.base import ChatRequest
from agentkv.engine.record_file import RecordFile
from agentkv.engine.recording import Digests
from agentkv.langchain.record import Sent, line_of, text_of
from agentkv.langchain.rows import HEALTHY, CallRow, Kind, Totals
from agentkv.report.report import KEY, CacheReport

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = 1
_OPEN = 10_000
"""Runs that are open at the same time; older ones are forgotten (their end never came)."""


@dataclass(frozen=True, slots=True)
class _Started:
    parent: UUID | None
    metadata: Mapping[str, Any]
    tags: tuple[str, ...]
    model: str
    at: float
    sent: Sent | None = None


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a recording has of a call beside its row."""

    sent: Sent
    answer: BaseMessage | str | None
    metadata: Mapping[str, Any]


class CacheReportHandler(BaseCallbackHandler):
    """Books every model call below it. Safe from many threads, in sync and async runs.

    The last `limit` calls are kept as `rows`; `totals` counts all of them.

    `record`: a file to which a line is added for each call (see `agentkv.engine.recording`), with
    digests and counts, and with `record_text` prompts and answers as well. Lines are written on a
    thread of their own and never fail a call; `close` waits for them, and so does the end of the
    process. Raises OSError when the file cannot be opened.
    """

    run_inline = True
    """Booking takes microseconds: in async runs it needs no thread, and keeps the order."""

    def __init__(
        self,
        *,
        limit: int = 10_000,
        record: str | os.PathLike[str] | None = None,
        record_text: bool = False,
    ) -> None:
        super().__init__()
        if record_text and record is None:
            raise ValueError("record_text needs a file: record='run.jsonl'.")
        self._file = None if record is None else RecordFile(record, background=True)
        self._with_text = record_text
        self._digests = Digests()
        self._lock = threading.Lock()
        self._rows: deque[CallRow] = deque(maxlen=limit)
        self._totals = Totals()
        self._booked: OrderedDict[UUID, None] = OrderedDict()
        self._answers: OrderedDict[str, None] = OrderedDict()
        self._roots: OrderedDict[UUID, UUID] = OrderedDict()
        self._open: OrderedDict[UUID, _Started] = OrderedDict()
        self._outer: CacheReportHandler | None = None

    # -- what was booked -------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[CallRow, ...]:
        """Calls in the order in which they ended."""
        with self._lock:
            return tuple(self._rows)

    @property
    def totals(self) -> Totals:
        with self._lock:
            return self._totals

    @property
    def hit_rate(self) -> float:
        """Reused share of all prompt tokens whose reuse is known; NaN without any."""
        return self.totals.hit_rate

    hit_ratio = hit_rate

    def by_node(self) -> dict[str, Totals]:
        """Sums by LangGraph node; calls outside of a graph are under ""."""
        return self._by(lambda row: row.node)

    def by_step(self) -> dict[int | None, Totals]:
        """Sums by LangGraph step, which starts anew in every run of a graph."""
        return self._by(lambda row: row.step)

    def by_namespace(self) -> dict[str, Totals]:
        """Sums by subagent: the names of the nodes that a subgraph hangs under, joined by "|"."""
        return self._by(lambda row: row.namespace)

    def by_thread(self) -> dict[str, Totals]:
        return self._by(lambda row: row.thread)

    def by_model(self) -> dict[str, Totals]:
        return self._by(lambda row: row.model)

    def by_run(self) -> dict[UUID, Totals]:
        """Sums by the run at the top of the tree: one `invoke` of an agent is one."""
        return self._by(lambda row: row.root)

    def misses(self) -> list[CallRow]:
        """Calls that lost something, the most expensive first: reuse ended for another reason than
        that the conversation went on."""
        lost = [
            row
            for row in self.rows
            if row.counted and row.report and row.report.miss and row.report.reason not in HEALTHY
        ]
        return sorted(lost, key=lambda row: -row.report.computed_tokens if row.report else 0)

    def table(self, *, title: str | None = None) -> Table:
        """A row for each call, and the sums."""
        from agentkv.langchain.rows_table import rows_table

        return rows_table(self.rows, self.totals, title=title)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: totals, sums by node, model and namespace, and every kept row."""
        rows = self.rows
        return {
            "schema": SCHEMA,
            "totals": self.totals.to_dict(),
            "by_node": {k: v.to_dict() for k, v in self.by_node().items()},
            "by_model": {k: v.to_dict() for k, v in self.by_model().items()},
            "by_namespace": {k: v.to_dict() for k, v in self.by_namespace().items()},
            "rows": [row.to_dict() for row in rows],
        }

    def clear(self) -> None:
        """Forget what was booked."""
        with self._lock:
            self._rows.clear()
            self._booked.clear()
            self._totals = Totals()

    def close(self) -> None:
        """Finish the recording, if there is one. What is booked stays; closing twice does nothing."""
        if self._file is not None:
            self._file.close()

    def __repr__(self) -> str:
        t = self.totals
        return f"{type(self).__name__}(calls={t.calls}, hit_rate={t.hit_rate:.3f})"

    def __rich__(self) -> Table:
        return self.table()

    def _by(self, key: Callable[[CallRow], Any]) -> dict[Any, Totals]:
        out: dict[Any, Totals] = {}
        for row in self.rows:
            out[key(row)] = out.get(key(row), Totals()).plus(row)
        return out

    # -- what LangChain calls --------------------------------------------------------------------

    def on_chain_start(
        self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **__: Any
    ) -> None:
        self._enter(run_id, parent_run_id)

    def on_tool_start(
        self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **__: Any
    ) -> None:
        """A tool may be an agent: its calls belong to the same tree."""
        self._enter(run_id, parent_run_id)

    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._leave(run_id)

    def on_chain_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._leave(run_id)

    def on_tool_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._leave(run_id)

    def on_tool_error(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._leave(run_id)

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        sent = None
        if self._recording:
            params = kwargs.get("invocation_params") or {}
            sent = Sent.given(time.time(), params, messages=messages[0] if messages else ())
        self._start(serialized, sent=sent, **kwargs)

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], **kwargs: Any) -> None:
        sent = None
        if self._recording:
            params = kwargs.get("invocation_params") or {}
            sent = Sent.given(time.time(), params, prompt=prompts[0] if prompts else "")
        self._start(serialized, sent=sent, **kwargs)

    def on_request(self, request: ChatRequest, *, run_id: UUID) -> None:
        """A chat model of ours says what it sends, behind its layout."""
        if not self._recording:
            return
        with self._lock:
            started = self._open.get(run_id)
            if started is not None and started.sent is not None:
                sent = Sent.laid_out(started.sent.time, request)
                self._open[run_id] = replace(started, sent=sent)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        answer = next((g for group in response.generations for g in group), None)
        report = CacheReport.from_message(answer)
        if report is None and isinstance(response.llm_output, Mapping):
            usage = response.llm_output.get("token_usage") or response.llm_output.get("usage")
            if isinstance(usage, Mapping) and usage:
                report = CacheReport.from_usage(usage)
        model = _model_of(answer, response.llm_output)
        kind: Kind = "response_cache" if self._replayed(answer) else "call"
        self._end(
            run_id,
            kwargs.get("parent_run_id"),
            kind,
            model=model,
            report=report,
            answer=text_of(answer),
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        # The kind of the error and not its text, which may quote a prompt.
        left = isinstance(error, (GeneratorExit, asyncio.CancelledError))
        kind: Kind = "cancelled" if left else "error"
        self._end(run_id, kwargs.get("parent_run_id"), kind, error=type(error).__name__)

    # -- booking ---------------------------------------------------------------------------------

    def _enter(self, run_id: UUID, parent: UUID | None) -> UUID:
        with self._lock:
            root = self._roots.get(parent, parent) if parent else run_id
            self._roots[run_id] = root
            while len(self._roots) > _OPEN:
                self._roots.popitem(last=False)
            return root

    def _leave(self, run_id: UUID) -> None:
        with self._lock:
            self._roots.pop(run_id, None)

    def _start(
        self,
        serialized: dict[str, Any] | None,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        sent: Sent | None = None,
        **kwargs: Any,
    ) -> None:
        self._enter(run_id, parent_run_id)
        given = kwargs.get("invocation_params") or {}
        name = (
            given.get("model") or given.get("model_name") or (metadata or {}).get("ls_model_name")
        )
        started = _Started(
            parent_run_id,
            dict(metadata or {}),
            tuple(tags or ()),
            str(name or ""),
            time.monotonic(),
            sent,
        )
        with self._lock:
            self._open[run_id] = started
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)

    def _end(
        self,
        run_id: UUID,
        parent: UUID | None,
        kind: Kind,
        *,
        model: str = "",
        report: CacheReport | None = None,
        error: str | None = None,
        answer: BaseMessage | str | None = None,
    ) -> None:
        now = time.monotonic()
        with self._lock:
            started = self._open.pop(run_id, None) or _Started(parent, {}, (), "", now)
            root = self._roots.pop(run_id, started.parent or run_id)
        meta = started.metadata
        taken = None
        if started.sent is not None and kind != "response_cache":
            taken = _Taken(started.sent, answer, meta)
        step = meta.get("langgraph_step")
        self._book(
            CallRow(
                run_id=run_id,
                parent=started.parent,
                root=root,
                kind=kind,
                model=model or started.model,
                node=str(meta.get("langgraph_node") or ""),
                step=step if isinstance(step, int) else None,
                namespace=_namespace(meta),
                thread=str(meta.get("thread_id") or ""),
                tags=started.tags,
                ms=1000 * (now - started.at),
                report=report,
                error=error,
            ),
            taken,
        )

    @property
    def _recording(self) -> bool:
        """Whether this handler or one around it writes a file."""
        outer = self._outer
        return self._file is not None or (outer is not None and outer._recording)

    def _book(self, row: CallRow, taken: _Taken | None = None) -> None:
        with self._lock:
            # A run that reaches a handler twice (passed in, and by the context) counts once.
            if row.run_id in self._booked:
                return
            self._booked[row.run_id] = None
            while len(self._booked) > _OPEN:
                self._booked.popitem(last=False)
            self._rows.append(row)
            self._totals = self._totals.plus(row)
            outer = self._outer
        if self._file is not None and taken is not None:
            self._file.write(lambda: self._line(row, taken))
        if outer is not None:
            outer._book(row, taken)

    def _line(self, row: CallRow, taken: _Taken) -> dict[str, Any]:
        return line_of(
            row,
            taken.sent,
            taken.answer,
            taken.metadata,
            self._digests,
            with_text=self._with_text,
        )

    def _replayed(self, answer: Any) -> bool:
        """Whether LangChain's response cache gave this answer: it sets the cost to 0; and an answer
        of ours carries an id, which no second call has."""
        message = getattr(answer, "message", None)
        usage = getattr(message, "usage_metadata", None)
        if isinstance(usage, Mapping) and usage.get("total_cost") == 0:
            return True
        meta = getattr(message, "response_metadata", None) or {}
        answer_id = meta.get("id") if KEY in meta else None
        if not answer_id:
            return False
        with self._lock:
            seen = answer_id in self._answers
            self._answers[str(answer_id)] = None
            while len(self._answers) > _OPEN:
                self._answers.popitem(last=False)
        return seen


def _model_of(answer: Any, output: Mapping[str, Any] | None) -> str:
    if isinstance(answer, ChatGeneration):
        found = answer.message.response_metadata.get("model_name")
    else:
        found = (getattr(answer, "generation_info", None) or {}).get("model_name")
    return str(found or (output or {}).get("model_name") or "")


def _namespace(metadata: Mapping[str, Any]) -> str:
    """The subgraphs that a call is inside of: `outer:uuid|model:uuid` is the node `model` in the
    subgraph `outer`. Ids are new in every run, so they are dropped."""
    path = str(metadata.get("langgraph_checkpoint_ns") or "").split("|")
    return "|".join(part.split(":")[0] for part in path[:-1])


_CURRENT: ContextVar[CacheReportHandler | None] = ContextVar("agentkv_cache_report", default=None)
# Once, at import: a hook that is registered stays for good, so one for each use would pile up.
register_configure_hook(_CURRENT, inheritable=True)


@contextmanager
def cache_report(
    *,
    limit: int = 10_000,
    record: str | os.PathLike[str] | None = None,
    record_text: bool = False,
) -> Iterator[CacheReportHandler]:
    """Book the model calls inside the block, without passing a handler around. Arguments as those
    of `CacheReportHandler`; a recording is complete when the block ends.

    Blocks may be nested: a call counts in each block around it. Tasks and LangChain's own threads
    inherit the block; a bare `threading.Thread` does not, so give it the handler as a callback.
    """
    handler = CacheReportHandler(limit=limit, record=record, record_text=record_text)
    handler._outer = _CURRENT.get()
    token = _CURRENT.set(handler)
    try:
        yield handler
    finally:
        _CURRENT.reset(token)
        handler.close()
