"""What breaks the prefix of an agent, one case each: the middlewares people use, as they use them.

Every case has two halves: the agent as it is often written, and the same agent with the layout on
its model and `CacheLayoutMiddleware` last (where the breaker is an edit of the history, with the
edit that holds instead of sliding).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
)
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core.messages import SystemMessage, trim_messages

from agentkv.langchain import ChatAgentKV
from agentkv.langchain.agents import (
    CacheLayoutMiddleware,
    ClearToolUsesSticky,
    prefix_preserving_summarizer,
    trim_in_jumps,
)

RULES = """You are the operations assistant of a small logistics company.
Answer in one or two plain sentences, and name the records that you used.
Look things up with the tools before you answer; never invent an order, a date or a price.
Amounts are in euros with two decimals. Dates are written as 2025-03-14.
A shipment that is more than five days late is escalated to the depot that holds it.
Refunds above 200.00 need the approval of a team lead, whose name goes into the note.
Do not repeat personal data that the question did not mention.
When two records disagree, say so, and trust the one that was changed last."""

Middlewares = list[AgentMiddleware[Any, Any, Any]]
Make = Callable[["Setting"], Middlewares]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a case may need to make its middlewares: the model, and how long the run is."""

    model: ChatAgentKV
    results: int
    """Tool results of the whole run."""
    turn: int
    """Model calls of one user turn."""


@dataclass(frozen=True, slots=True)
class Case:
    """`floor` is the hit rate that the second half has to reach; None: more than the first half."""

    name: str
    off: Make
    on: Make
    floor: float | None = 0.88


class EachCall(AgentMiddleware[Any, Any, Any]):
    """Changes every request by a function of it and of the number of the call."""

    def __init__(self, change: Callable[[Any, int], Any]) -> None:
        super().__init__()
        self._change = change
        self._calls = 0

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self._calls += 1
        return handler(self._change(request, self._calls - 1))


def cases() -> list[Case]:
    """The matrix."""
    return [
        _layout_only("baseline", lambda s: []),
        _layout_only(
            "dynamic_prompt, head", lambda s: [_prompt(lambda n: f"{_clock(n)}\n{RULES}")]
        ),
        _layout_only(
            "dynamic_prompt, tail", lambda s: [_prompt(lambda n: f"{RULES}\n{_clock(n)}")]
        ),
        _layout_only("memory appended", lambda s: [_prompt(lambda n: f"{RULES}\n\n{_memory(n)}")]),
        _layout_only("tool order differs", lambda s: [_shuffled()]),
        _layout_only("tool selector, 2 of 6", lambda s: [EachCall(_selected)]),
        _layout_only("TodoListMiddleware", lambda s: [TodoListMiddleware()]),
        Case(
            "ContextEditing, keep 3",
            lambda s: [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=400, keep=3)])],
            lambda s: [
                ContextEditingMiddleware(
                    edits=[
                        ClearToolUsesSticky(
                            trigger=400, keep=3, batch=max(2, s.results // 3), clear_at_least=10**6
                        )
                    ]
                ),
                _layout(),
            ],
            None,
        ),
        Case("Summarization, 8 keep 4", lambda s: [_summary(s, None)], _summary_on, None),
        # The same limit on what is kept, but cut once a turn or two instead of at every second call.
        Case(
            "Summarization, rarely",
            lambda s: [_summary(s, None)],
            lambda s: _summary_on(s, trigger=max(12, s.results)),
        ),
        Case(
            "trim_messages, last 6",
            lambda s: [EachCall(_trimmed)],
            lambda s: [EachCall(_jumped), _layout()],
            None,
        ),
    ]


def _layout_only(name: str, make: Make) -> Case:
    return Case(name, make, lambda s: [*make(s), _layout()])


def _layout() -> CacheLayoutMiddleware:
    return CacheLayoutMiddleware(dynamic="tail_message")


def _prompt(text: Callable[[int], str]) -> EachCall:
    return EachCall(lambda r, n: r.override(system_message=SystemMessage(text(n))))


def _clock(call: int) -> str:
    return f"Current time: 2025-03-14 09:{call // 60:02}:{call % 60:02}."


def _memory(call: int) -> str:
    """What a memory store would find for this call: other notes each time."""
    notes = (
        "asked to be called by the first name",
        "works in the Rotterdam office",
        "prefers tables to prose",
        "is on leave from the 20th",
        "handles the account of Nordmeer",
        "escalated A-771 last week",
        "wants weights in kilograms",
    )
    chosen = [notes[(call * step + 1) % len(notes)] for step in (1, 2, 4)]
    chosen.insert(0, f"has asked {call + 1} things today")
    return "Notes about the user:\n" + "\n".join(f"- The user {n}." for n in chosen)


def _shuffled() -> EachCall:
    rng = random.Random(0)

    def change(request: Any, call: int) -> Any:
        tools = list(request.tools)
        rng.shuffle(tools)
        return request.override(tools=tools)

    return EachCall(change)


def selected(call: int, tools: int) -> tuple[int, int]:
    """The two tools that a selector offers in this call: other ones for every third call."""
    first = 2 * (call // 3)
    return first % tools, (first + 1) % tools


def _selected(request: Any, call: int) -> Any:
    pair = selected(call, len(request.tools))
    return request.override(tools=[request.tools[i] for i in sorted(pair)])


def _summary(
    setting: Setting, summarizer: Any, trigger: int = 8
) -> SummarizationMiddleware[Any, Any]:
    return SummarizationMiddleware(
        setting.model,
        trigger=("messages", trigger),
        keep=("messages", 4),
        trim_tokens_to_summarize=None,
        summarizer=summarizer,
    )


def _summary_on(setting: Setting, trigger: int = 8) -> Middlewares:
    layout = _layout()
    summarizer = prefix_preserving_summarizer(setting.model, layout=layout)
    return [_summary(setting, summarizer, trigger), layout]


def _trimmed(request: Any, call: int) -> Any:
    kept: Sequence[Any] = trim_messages(
        request.messages,
        max_tokens=6,
        token_counter=len,
        strategy="last",
        start_on=("human", "ai"),
    )
    return request.override(messages=list(kept))


def _jumped(request: Any, call: int) -> Any:
    return request.override(messages=trim_in_jumps(request.messages, most=12, least=4))
