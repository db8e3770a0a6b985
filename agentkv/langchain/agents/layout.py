"""`CacheLayoutMiddleware`: keeps the prompts of an agent stable, whatever its other parts do."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from agentkv.langchain.agents.optional import missing
from agentkv.langchain.agents.plan import Dynamic, Plan, Planner, ToolPolicy
from agentkv.langchain.chat import ChatAgentKV
from agentkv.report.report import KEY, CacheReport

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
except ImportError as error:  # pragma: no cover (tests simulate it in a process of their own)
    raise missing("CacheLayoutMiddleware") from error

Keep = Callable[[str], bool] | Sequence[str | re.Pattern[str]]


class CacheLayoutMiddleware(AgentMiddleware[Any, Any, Any]):
    """Put it last, so that it sees the request as it would be sent.

    `dynamic`: what of the system prompt may go behind the history, as a labelled block.
    "declared" (default): texts that are marked (`volatile()`, `split_prompt(dynamic=...)`).
    "tail_message": also lines that were seen to change between calls. They arrive with the trust
    of a user's text, each is listed in the report, and `keep` (patterns, or a function of the
    text) leaves some where they are.

    `tool_policy`: "union_masked" keeps every tool that a thread has had in its prompt, and forbids
    at decode time those that this call does not offer; where the model cannot do that (all models
    but `ChatAgentKV`) the selection is left alone and only the order is kept. "stable_order" does
    that for all, "leave" nothing. `tools` are sent from a thread's first call on, so that late ones
    do not change the prompt; leave out what not every user may know of.

    `trailing=False` is for providers that refuse a user message behind a tool result. `threads`
    bounds what is remembered; a thread without an id is told by its first user message.

    The report of each answer is in `response_metadata["agentkv"]`, its `layout` says what was done.
    """

    def __init__(
        self,
        *,
        dynamic: Dynamic = "declared",
        tool_policy: ToolPolicy = "union_masked",
        tools: Sequence[Any] = (),
        keep: Keep = (),
        trailing: bool = True,
        threads: int = 1024,
    ) -> None:
        super().__init__()
        if dynamic not in ("declared", "tail_message"):
            raise ValueError(f'dynamic must be "declared" or "tail_message", got {dynamic!r}.')
        if tool_policy not in ("union_masked", "stable_order", "leave"):
            raise ValueError(
                f'tool_policy must be "union_masked", "stable_order" or "leave", got {tool_policy!r}.'
            )
        self._planner = Planner(
            dynamic=dynamic,
            tool_policy=tool_policy,
            tools=tools,
            keep=_keeper(keep),
            trailing=trailing,
            threads=threads,
        )

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Any:
        plan = self._plan(request)
        return _attach(handler(_overridden(request, plan)), request.model, plan)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        plan = self._plan(request)
        return _attach(await handler(_overridden(request, plan)), request.model, plan)

    def last_sent(
        self, messages: Sequence[BaseMessage] = ()
    ) -> tuple[SystemMessage | None, list[Any]]:
        """System message and tools of the current thread's last call (of the conversation with this
        first user message, where threads have no id): what a call must start with to reuse it."""
        found = self._planner.sent(_thread(None), messages)
        return found if found is not None else (None, [])

    def _plan(self, request: ModelRequest[Any]) -> Plan:
        ours = isinstance(request.model, ChatAgentKV)
        return self._planner.plan(
            request.system_message,
            request.messages,
            request.tools,
            thread=_thread(request.runtime),
            masks=ours,
            arranges=ours,
        )


def _overridden(request: ModelRequest[Any], plan: Plan) -> ModelRequest[Any]:
    more: dict[str, Any] = {}
    if plan.allowed is not None:
        allowed = [*plan.allowed, *_answer_tools(request)]
        if allowed:
            more["model_settings"] = {**request.model_settings, "allowed_tools": allowed}
        else:
            more["tool_choice"] = "none"
    return request.override(
        system_message=plan.system, messages=plan.messages, tools=plan.tools, **more
    )


def _answer_tools(request: ModelRequest[Any]) -> list[str]:
    """Names of the tools by which a structured answer is given: the agent adds them behind the
    others after this, and they stay allowed."""
    wanted: Any = request.response_format
    if wanted is None or isinstance(wanted, ProviderStrategy):
        return []
    if not isinstance(wanted, ToolStrategy):
        profile = getattr(request.model, "profile", None) or {}
        if profile.get("structured_output"):
            return []
        wanted = ToolStrategy(wanted.schema if isinstance(wanted, AutoStrategy) else wanted)
    return [spec.name for spec in wanted.schema_specs]


def _attach(response: Any, model: Any, plan: Plan) -> Any:
    """The answer with what the plan did in its report."""
    if isinstance(response, AIMessage):
        return _reported(response, model, plan)
    if not isinstance(response, ModelResponse):
        return response
    result = [_reported(m, model, plan) if isinstance(m, AIMessage) else m for m in response.result]
    return replace(response, result=result)


def _reported(message: AIMessage, model: Any, plan: Plan) -> AIMessage:
    ours = message.response_metadata.get(KEY)
    if isinstance(model, ChatAgentKV) and not isinstance(ours, Mapping):
        return message  # report="off"
    report = CacheReport.from_message(message)
    if report is None:
        report = CacheReport(prompt_tokens=0, cached_tokens=0, cached_known=False)
    layout = plan.layout if report.layout is None else report.layout.joined(plan.layout)
    detail = "full" if getattr(model, "report", None) == "full" else "summary"
    data = replace(report, layout=layout).to_dict("full" if detail == "full" else "summary")
    data = {**(ours if isinstance(ours, Mapping) else {}), **data}
    return message.model_copy(
        update={"response_metadata": {**message.response_metadata, KEY: data}}
    )


def _thread(runtime: Any) -> str | None:
    """LangGraph's thread id, from the runtime or the config that is current."""
    found = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    if not found:
        from langgraph.config import get_config

        try:
            found = (get_config().get("configurable") or {}).get("thread_id")
        except RuntimeError:  # outside of a graph
            found = None
    return str(found) if found else None


def _keeper(keep: Keep) -> Callable[[str], bool]:
    if callable(keep):
        return keep
    patterns = [re.compile(p) if isinstance(p, str) else p for p in keep]
    return lambda text: any(p.search(text) for p in patterns)
