"""A summary is asked for at the end of the conversation itself, so that it reuses all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from agentkv.langchain import ChatAgentKV
from agentkv.langchain.agents import CacheLayoutMiddleware, prefix_preserving_summarizer
from agentkv.langchain.handler import cache_report

from .conftest import Recorder, make_tool

if TYPE_CHECKING:
    from agentkv.engine import Engine

THREAD: Any = {"configurable": {"thread_id": "s"}}
RULES = "You are a desk agent. Answer in one sentence, and never give medical advice."


def build(llm: Any, summarizer: Any, layout: Any) -> Any:
    summary = SummarizationMiddleware(
        llm,
        trigger=("messages", 8),
        keep=("messages", 2),
        trim_tokens_to_summarize=None,
        summary_prompt="Sum up this conversation:\n{messages}",
        summarizer=summarizer,
    )
    return create_agent(
        llm,
        [make_tool("orders"), make_tool("refunds")],
        system_prompt=RULES,
        middleware=[summary, layout],
        checkpointer=InMemorySaver(),
    )


def test_the_summary_reuses_the_conversation(shared: Engine) -> None:
    llm = ChatAgentKV(model="tiny", engine=shared, max_tokens=12)

    def play(summarizer: Any, layout: Any, thread: str) -> list[Any]:
        made = build(llm, summarizer, layout)
        config: Any = {"configurable": {"thread_id": thread}}
        with cache_report() as r:
            for i in range(5):
                made.invoke({"messages": [HumanMessage(f"question {i} " * 6)]}, config)
        (summary,) = [row for row in r.rows if "before_model" in row.node]
        state = made.get_state(config).values["messages"]
        assert state[0].additional_kwargs == {"lc_source": "summarization"}
        return [summary.report, state]

    layout = CacheLayoutMiddleware()
    kept, state = play(prefix_preserving_summarizer(llm, layout=layout), layout, "kept")
    stock, _ = play(None, CacheLayoutMiddleware(), "stock")
    assert kept.cached_tokens > 0.6 * kept.prompt_tokens
    assert stock.cached_tokens < 0.1 * stock.prompt_tokens
    assert kept.computed_tokens < stock.computed_tokens / 2
    assert "Here is a summary" in state[0].text


def test_what_it_sends(recorder: Callable[..., Recorder]) -> None:
    model = recorder(AIMessage("short"))
    messages = [HumanMessage("a"), AIMessage("b")]
    summarizer = prefix_preserving_summarizer(
        model, system=RULES, tools=[make_tool("x")], instruction="Sum up.", max_tokens=9
    )
    assert summarizer.invoke(messages) == "short"
    (sent,) = model.calls
    assert [m.text for m in sent["messages"]] == [RULES, "a", "b", "Sum up."]
    assert isinstance(sent["messages"][0], SystemMessage)
    assert sent["tool_choice"] == "none"
    assert sent["max_tokens"] == 9
    assert model.tools(0) == ["x"]
    assert asyncio.run(summarizer.ainvoke(messages)) == "done"
    assert "tools" not in model.calls[0] or model.calls[1]["messages"] == model.calls[0]["messages"]


def test_an_empty_summary_is_an_error(recorder: Callable[..., Recorder]) -> None:
    summarizer = prefix_preserving_summarizer(recorder(AIMessage("  ")))
    with pytest.raises(ValueError, match="no summary"):
        summarizer.invoke([HumanMessage("a")])
