"""`agentkv demo`: the same conversations, or the same recorded sessions, once for each layout."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.demo.desk_run import STEPS, Clock, run_desk, wall_clock
from agentkv.demo.replay import run_traces
from agentkv.demo.result import CallRow, RunResult, runs_json
from agentkv.demo.script import CONVERSATIONS, Conversation
from agentkv.demo.table import print_runs
from agentkv.demo.traces import read_traces
from agentkv.layout import Level

if TYPE_CHECKING:
    from agentkv.engine import Engine

LAYOUTS: tuple[Level, ...] = ("off", "static_first")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What to run. `trace` replaces the support desk by recorded sessions, at most `limit`."""

    model: str
    page_size: int = 1
    dtype: str = "auto"
    layouts: Sequence[Level] = LAYOUTS
    max_tokens: int = 64
    steps: int = STEPS
    trace: Path | None = None
    limit: int | None = None
    seed: int = 0
    conversations: Sequence[Conversation] = CONVERSATIONS
    clock: Clock = wall_clock


def run_demo(
    options: DemoOptions, *, say: Callable[[str], None] = lambda text: None
) -> list[RunResult]:
    """Run every layout on an emptied cache. `say` hears of progress, a line a call.

    Raises `TraceError` for a trace that cannot be read, and the engine's errors.
    """
    from agentkv.engine import Engine

    sessions = read_traces(options.trace, limit=options.limit) if options.trace else []
    results = []
    say(f"loading {options.model}")
    with Engine(model=options.model, page_size=options.page_size, dtype=options.dtype) as engine:
        for layout in options.layouts:
            engine.flush()
            started = time.perf_counter()
            result = _run(engine, layout, options, sessions, partial(_tell, say, layout))
            result.wall_s = time.perf_counter() - started
            results.append(result)
    return results


def _run(
    engine: Engine,
    layout: Level,
    options: DemoOptions,
    sessions: Sequence[Any],
    on_call: Callable[[CallRow], None],
) -> RunResult:
    from agentkv.langchain import ChatAgentKV

    model = ChatAgentKV(engine=engine, layout=layout, max_tokens=options.max_tokens, temperature=0)
    with ExitStack() as stack:
        if options.trace is not None:
            return run_traces(model, layout, sessions, on_call=on_call)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="agentkv-demo-"))
        return run_desk(
            model,
            layout,
            options.conversations,
            Path(folder) / "desk.sqlite",
            clock=options.clock,
            seed=options.seed,
            steps=options.steps,
            on_call=on_call,
        )


def main(options: DemoOptions, *, as_json: bool = False, verbose: bool = False) -> int:
    """Run and print: tables, or JSON, to stdout; progress to stderr. Returns the exit status."""
    runs = run_demo(options, say=lambda text: print(text, file=sys.stderr, flush=True))
    if as_json:
        print(json.dumps(runs_json(runs, model=options.model), ensure_ascii=False))
        return 0
    if verbose:
        for run in runs:
            for row in run.calls:
                said = row.answer or "-> " + ", ".join(row.tools)
                print(f"[{run.layout}] {row.conversation}, turn {row.turn}: {said}")
    print_runs(runs)
    return 0


def _tell(say: Callable[[str], None], layout: str, row: CallRow) -> None:
    report = row.report
    did = ", ".join(row.tools) or "answer"
    say(
        f"{layout:>12}  {row.conversation}, turn {row.turn}: {report.cached_tokens:,} of "
        f"{report.prompt_tokens:,} cached, first token after {row.ttft_ms:,.0f} ms; {did}"
    )
