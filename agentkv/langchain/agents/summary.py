"""`prefix_preserving_summarizer()`: summaries that are read from the conversation's own prefix.

`SummarizationMiddleware` puts the whole history into a prompt of its own, as text: nothing of it
is in the cache, and the longest prompt of the conversation is computed from its first token. Here
the summary is asked for at the end of the very messages that the model has just seen, behind the
same system message and the same tools, so that all but the request is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

if TYPE_CHECKING:
    from agentkv.langchain.agents.layout import CacheLayoutMiddleware

INSTRUCTION = """The conversation above will be replaced by a summary of it. Write that summary now.
Keep what is needed to go on: what the user wants, decisions and their reasons, facts and results \
from tools, files and records that were changed, and what remains to be done. Write only the \
summary, and call no tool."""


def prefix_preserving_summarizer(
    model: BaseChatModel,
    *,
    layout: CacheLayoutMiddleware | None = None,
    system: SystemMessage | str | None = None,
    tools: Sequence[Any] = (),
    instruction: str = INSTRUCTION,
    **settings: Any,
) -> Runnable[list[BaseMessage], str]:
    """A summarizer for `SummarizationMiddleware(model, summarizer=...)`.

    `layout` is the agent's `CacheLayoutMiddleware`, which knows what the thread sent last; without
    one, give the agent's `system` and `tools`. `settings` (such as `max_tokens=`) go with the call.
    Give the middleware `trim_tokens_to_summarize=None`: messages that were cut at their start share
    nothing with the conversation.

        layout = CacheLayoutMiddleware()
        summary = prefix_preserving_summarizer(model, layout=layout, max_tokens=300)
        create_agent(model, tools, middleware=[
            SummarizationMiddleware(model, trigger=("messages", 40), summarizer=summary,
                                    trim_tokens_to_summarize=None),
            layout,
        ])

    Raises ValueError (when it is called) if the model answers with no text.
    """

    def prepared(messages: Sequence[BaseMessage]) -> tuple[Any, list[BaseMessage]]:
        lead = SystemMessage(system) if isinstance(system, str) else system
        given = list(tools)
        if layout is not None:
            sent, sent_tools = layout.last_sent(messages)
            lead, given = sent or lead, sent_tools or given
        prompt = [*([lead] if lead is not None else []), *messages, HumanMessage(instruction)]
        # The tools stay in the prompt, for its prefix; that none is called is asked of the decoder.
        bound = model.bind_tools(given, tool_choice="none", **settings) if given else None
        return bound or model.bind(**settings), prompt

    def summarize(messages: list[BaseMessage], config: RunnableConfig) -> str:
        bound, prompt = prepared(messages)
        return _text(bound.invoke(prompt, config))

    async def asummarize(messages: list[BaseMessage], config: RunnableConfig) -> str:
        bound, prompt = prepared(messages)
        return _text(await bound.ainvoke(prompt, config))

    return RunnableLambda(summarize, asummarize, name="prefix_preserving_summarizer")


def _text(answer: BaseMessage) -> str:
    text = answer.text.strip()
    if not text:
        raise ValueError("the model wrote no summary: its answer has no text.")
    return text
