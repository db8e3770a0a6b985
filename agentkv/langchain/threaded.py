"""Core's ways to call a chat model, each told which conversation the call belongs to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import RunnableConfig

from agentkv.langchain import chunks, thread


class Threaded(BaseChatModel):
    """A chat model whose `_generate` and `_stream` find the conversation's name in `thread`, or in
    their `session` argument, whichever way core takes to them."""

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        with thread.within(thread.of_config(config)):
            return super().invoke(input, config, stop=stop, **kwargs)

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        with thread.within(thread.of_config(config)):
            return await super().ainvoke(input, config, stop=stop, **kwargs)

    # A generator's context is its consumer's, so these are told by argument.

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        return super().stream(input, config, stop=stop, **self._named(config, kwargs))

    def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        return super().astream(input, config, stop=stop, **self._named(config, kwargs))

    def stream_events(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        version: Any = "v2",
        **kwargs: Any,
    ) -> Any:
        if version == "v3":  # the others go by way of `stream`
            kwargs = self._named(config, kwargs)
        return super().stream_events(input, config, version=version, **kwargs)

    def astream_events(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        version: Any = "v2",
        **kwargs: Any,
    ) -> Any:
        if version == "v3":
            kwargs = self._named(config, kwargs)
        return super().astream_events(input, config, version=version, **kwargs)

    def _named(self, config: RunnableConfig | None, kwargs: dict[str, Any]) -> dict[str, Any]:
        """`kwargs` with the session that the configuration names, where nothing else names one."""
        if kwargs.get("session") or getattr(self, "session", None):
            return kwargs
        name = thread.of_config(config)
        return {**kwargs, "session": name} if name else kwargs

    def _generate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with thread.within(thread.of_metadata(getattr(run_manager, "metadata", None))):
            out = super()._generate_with_cache(messages, stop, run_manager, **kwargs)
        chunks.settle(out)
        return out

    async def _agenerate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with thread.within(thread.of_metadata(getattr(run_manager, "metadata", None))):
            out = await super()._agenerate_with_cache(messages, stop, run_manager, **kwargs)
        chunks.settle(out)
        return out
