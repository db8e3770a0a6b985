"""`AgentKV`: a LangChain text model. A raw prompt goes in as it is; the report comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.llms import LLM
from langchain_core.outputs import Generation, GenerationChunk, LLMResult

from agentkv.client.base import ChatDelta, ChatReply, TextRequest
from agentkv.client.errors import InvalidCall
from agentkv.langchain import usage
from agentkv.langchain.settings import CONFIG, Settings

CONCURRENCY = 16
"""Prompts of one batch that are sent at the same time."""


class AgentKV(Settings, LLM):
    """A text model over the in-process engine or `agentkv serve`.

    The prompt is sent as it is: a text has no parts that could be laid out. Each generation has
    `generation_info["agentkv"]`, the cache report, and `llm_output` sums the tokens (the stock
    class would drop both).
    """

    model_config = CONFIG

    def _prepare(
        self, prompt: str, stop: list[str] | None, run_manager: Any, kwargs: dict[str, Any]
    ) -> tuple[TextRequest, str | None]:
        kwargs = dict(kwargs)
        request = TextRequest(
            prompt=prompt,
            params=self._params(stop, kwargs),
            session=self._session(run_manager, kwargs),
            salt=self.cache_salt,
            timeouts=self._timeouts(kwargs),
        )
        model = kwargs.pop("model", None)
        unknown = [name for name, v in kwargs.items() if name != "stream" and v is not None]
        if unknown:
            raise InvalidCall(f"unknown argument{'s'[: len(unknown) > 1]}: {', '.join(unknown)}.")
        return request, model

    def _call(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> str:
        request, model = self._prepare(prompt, stop, run_manager, kwargs)
        return self._client(model).send(request).text

    def _generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        def one(prompt: str) -> ChatReply:
            request, model = self._prepare(prompt, stop, run_manager, kwargs)
            return self._client(model).send(request)

        if len(prompts) == 1:
            return self._result([one(prompts[0])])
        # Side by side: the engine runs them as one batch, and shared prefixes are computed once.
        with ThreadPoolExecutor(min(len(prompts), CONCURRENCY)) as pool:
            return self._result(list(pool.map(one, prompts)))

    async def _agenerate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        room = asyncio.Semaphore(CONCURRENCY)

        async def one(prompt: str) -> ChatReply:
            request, model = self._prepare(prompt, stop, run_manager, kwargs)
            async with room:
                return await self._client(model).asend(request)

        return self._result(list(await asyncio.gather(*map(one, prompts))))

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        request, model = self._prepare(prompt, stop, run_manager, kwargs)
        for delta in self._client(model).stream(request):
            chunk = self._chunk(delta)
            if chunk is not None:
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[GenerationChunk]:
        request, model = self._prepare(prompt, stop, run_manager, kwargs)
        async for delta in self._client(model).astream(request):
            chunk = self._chunk(delta)
            if chunk is not None:
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _result(self, replies: list[ChatReply]) -> LLMResult:
        return LLMResult(
            generations=[[Generation(text=r.text, generation_info=self._info(r))] for r in replies],
            llm_output=usage.combined([usage.llm_output(r) for r in replies]),
        )

    def _chunk(self, delta: ChatDelta) -> GenerationChunk | None:
        if delta.reply is not None:
            return GenerationChunk(text="", generation_info=self._info(delta.reply))
        return GenerationChunk(text=delta.text) if delta.text else None

    def _info(self, reply: ChatReply) -> dict[str, Any]:
        return usage.metadata(reply, reply.report, self.report, self.price)

    def get_token_ids(self, text: str) -> list[int]:
        """Token ids of a text by the model's own tokenizer."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return self._client().encode(text)

    @property
    def _llm_type(self) -> str:
        return "agentkv"

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return False

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return self._sampling_identity()

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = usage.PROVIDER
        params["ls_model_name"] = kwargs.get("model") or self.model
        return params
