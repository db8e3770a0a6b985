"""What an agent's prompts reuse, by what its middlewares do to them; with the layout and without.

A real `create_agent` graph on the real engine: four user turns, each with five tool calls and an
answer. Which tool is called at which step is planned, so that both halves of a case do the same;
what the model writes is its own, held to the tool's schema by the grammar. Tool results are of one
length. Every call counts, those of summaries too.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from agentkv.bench.agent_cases import RULES, Case, Setting, cases, selected
from agentkv.bench.check import Report, progress
from agentkv.langchain import ChatAgentKV
from agentkv.langchain.handler import cache_report
from agentkv.langchain.rows import Totals

if TYPE_CHECKING:
    from agentkv.engine import Engine

QUESTIONS = (
    "Where is shipment A-771, and is it late?",
    "Has the customer of that order been refunded before?",
    "Which depot should we ask about the missing pallet?",
    "Write down what we know, and who has to act next.",
    "What would it cost to send the goods again?",
    "Is there anything else that is open for this customer?",
)
TOOLS = (
    ("customer_record", "A customer's addresses, contacts and open agreements."),
    ("depot_stock", "What a depot holds now, and what is expected there."),
    ("find_shipment", "Find a shipment by its number or its customer, with its last known place."),
    ("order_details", "The lines of an order: goods, amounts, weights and the agreed dates."),
    ("rate_table", "Rates and transit days between two depots for a class of goods."),
    ("refund_history", "Refunds of a customer or an order, with who approved them."),
)
"""By name, as the layout orders them: so that it has nothing to change in the baseline."""
WORDS = [
    "pallet",
    "depot",
    "carrier",
    "booked",
    "weight",
    "delay",
    "released",
    "customs",
    "route",
    "transfer",
    "docked",
    "sealed",
    "counted",
    "partial",
    "Rotterdam",
    "Gdansk",
    "Porto",
    "Malmo",
    "ordered",
    "packed",
    "loaded",
    "returned",
    "checked",
    "signed",
]


@dataclass(frozen=True, slots=True)
class Run:
    """One half of a case."""

    totals: Totals
    answers: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]
    """Name and arguments of each tool call."""


class Planned(AgentMiddleware[Any, Any, Any]):
    """Says which tool is called at each step of a turn, and when the turn ends.

    By counting its calls, since the messages may have been trimmed or summed up by then.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self._calls = 0

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        call, self._calls = self._calls, self._calls + 1
        if call % (self._steps + 1) == self._steps:
            return handler(request.override(tool_choice="none"))
        names = [name for name, _ in TOOLS]
        choice = names[selected(call, len(names))[call % 2]]
        return handler(request.override(tool_choice=choice))


def run(
    model: str,
    *,
    engine: Engine | None = None,
    only: Sequence[str] = (),
    turns: int = 4,
    steps: int = 5,
    result_chars: int = 540,
    max_tokens: int = 40,
    dtype: str = "auto",
) -> Report:
    """The matrix. `only` picks cases by a part of their name. Raises ValueError when none fits."""
    from agentkv.engine import Engine

    chosen = [
        c for c in cases() if not only or any(part.lower() in c.name.lower() for part in only)
    ]
    if not chosen:
        known = "; ".join(c.name for c in cases())
        raise ValueError(f"no case is called like that; there are: {known}.")
    report = Report(
        "agents",
        f"Prefix reuse of create_agent: {turns * (steps + 1)} model calls, {len(TOOLS)} tools",
    )
    own = engine is None
    engine = engine or Engine(model=model, dtype=dtype)
    try:
        bench = Bench(engine, turns, steps, result_chars, max_tokens)
        for case in chosen:
            _compare(report, bench, case)
    finally:
        if own:
            engine.close()
    report.notes.append(
        "hit: cached prompt tokens / prompt tokens, over all calls of a run, from an empty cache. "
        'off: layout="off", no middleware of ours. on: the defaults, and '
        'CacheLayoutMiddleware(dynamic="tail_message").'
    )
    return report


def _compare(report: Report, bench: Bench, case: Case) -> None:
    progress(f"agents: {case.name}")
    off, on = bench.play(case, layout=False), bench.play(case, layout=True)
    floor = case.floor
    ok = on.totals.hit_rate >= floor if floor else on.totals.hit_rate > off.totals.hit_rate
    report.rows.append(
        {
            "case": case.name,
            "calls": on.totals.calls,
            "prompt_off": off.totals.prompt_tokens,
            "prompt_on": on.totals.prompt_tokens,
            "hit_off": off.totals.hit_rate,
            "hit_on": on.totals.hit_rate,
            "computed_off": off.totals.computed_tokens,
            "computed_on": on.totals.computed_tokens,
            "ok": ok,
        }
    )
    target = f">= {floor:.2f}" if floor else f"> {off.totals.hit_rate:.3f} (off)"
    report.check(f"{case.name}, hit rate on", f"{on.totals.hit_rate:.3f}", target, ok)
    if case.name == "baseline":
        same = on.answers == off.answers and on.calls == off.calls
        pairs = zip(on.answers + _flat(on.calls), off.answers + _flat(off.calls), strict=True)
        equal = sum(a == b for a, b in pairs)
        report.check(
            "baseline, answers and tool calls on against off",
            f"{equal} of {len(off.answers) + len(off.calls)} equal",
            "all",
            same,
        )


def _flat(calls: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(f"{name}({args})" for name, args in calls)


class Bench:
    """Runs cases on one engine, each from an empty cache."""

    def __init__(
        self, engine: Engine, turns: int, steps: int, result_chars: int, max_tokens: int
    ) -> None:
        self.engine = engine
        self.turns = turns
        self.steps = steps
        self.result_chars = result_chars
        self.max_tokens = max_tokens

    def play(self, case: Case, *, layout: bool) -> Run:
        """One half of a case: an agent, its conversation, and what its calls reused."""
        self.engine.flush()
        gc.collect()
        model = ChatAgentKV(
            model=self.engine.model_name,
            engine=self.engine,
            layout="static_first" if layout else "off",
            max_tokens=self.max_tokens,
            temperature=0.0,
        )
        setting = Setting(model, results=self.turns * self.steps, turn=self.steps + 1)
        agent: Any = create_agent(
            model,
            [_tool(name, text, self.result_chars) for name, text in TOOLS],
            system_prompt=RULES,
            middleware=[
                Planned(self.steps),
                *(case.on(setting) if layout else case.off(setting)),
            ],
            checkpointer=InMemorySaver(),
        )
        thread = f"bench:{case.name}:{'on' if layout else 'off'}"
        config: Any = {
            "configurable": {"thread_id": thread},
            "recursion_limit": 20 * (self.steps + 1),
        }
        answers: list[str] = []
        calls: list[tuple[str, str]] = []
        with cache_report() as booked:
            for turn in range(self.turns):
                question = HumanMessage(QUESTIONS[turn % len(QUESTIONS)], id=f"q{turn}")
                for update in agent.stream({"messages": [question]}, config, stream_mode="updates"):
                    for message in ((update.get("model") or {}).get("messages")) or ():
                        if isinstance(message, AIMessage):
                            calls += [(c["name"], str(c["args"])) for c in message.tool_calls]
                            last = message.text
                answers.append(last)
        if booked.totals.errors or booked.totals.unknown:
            raise AssertionError("a call failed, or said nothing about its cache")
        return Run(booked.totals, tuple(answers), tuple(calls))


def _tool(name: str, description: str, chars: int) -> BaseTool:
    def look_up(query: str, limit: int = 5) -> str:
        return _result(name, f"{query}:{limit}", chars)

    return StructuredTool.from_function(look_up, name=name, description=description)


def _result(name: str, query: str, chars: int) -> str:
    """A text of `chars` characters that depends on the tool and the query, as a record would."""
    words: list[str] = []
    size = 0
    seed = f"{name}:{query}"
    while size <= chars:
        seed = hashlib.blake2b(seed.encode("utf-8", "replace"), digest_size=8).hexdigest()
        number = int(seed, 16)
        words.append(WORDS[number % len(WORDS)] + (f" {number % 997}." if number % 5 == 0 else ""))
        size += len(words[-1]) + 1
    return " ".join(words)[:chars]
