"""Conversations of a request: checked, and made into prompts off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from agentkv.engine.chat import Chat, prepare
from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.protocol import MAX_TOOLS, ChatRequest
from agentkv.engine.serve.service import Service
from agentkv.engine.types import RenderedPrompt, SamplingParams

_TEMPLATE_RESERVED = frozenset(
    {
        "tokenize",
        "return_dict",
        "return_tensors",
        "return_assistant_tokens_mask",
        "padding",
        "truncation",
        "max_length",
        "messages",
        "conversation",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenizer_kwargs",
    }
)


async def ready(
    service: Service, wanted: ChatRequest, params: SamplingParams, salt: str | None
) -> Chat:
    """The chat request made ready: prompt, grammar, and how to read its answers.

    In a thread: templates, tokenising and the compilation of a grammar take a while.
    """
    options = _options(
        service,
        wanted.messages,
        wanted.tools,
        add_generation_prompt=wanted.add_generation_prompt,
        continue_final_message=wanted.continue_final_message,
        template_kwargs=wanted.chat_template_kwargs,
    )
    policy = wanted.agentkv.auto_policy if wanted.agentkv is not None else None
    return await asyncio.to_thread(
        prepare,
        service.engine,
        wanted.messages,
        wanted.tools or None,
        params=params,
        tool_choice=wanted.tool_choice,
        parallel_tool_calls=wanted.parallel_tool_calls,
        response_format=wanted.response_format,
        auto_policy=policy or "auto",
        salt=salt,
        **options,
    )


async def render(
    service: Service,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
    template_kwargs: Mapping[str, Any] | None,
    salt: str | None = None,
) -> RenderedPrompt:
    """The prompt of a conversation, made in a thread."""
    options = _options(
        service,
        messages,
        tools,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        template_kwargs=template_kwargs,
    )
    return await asyncio.to_thread(
        service.engine.render, messages, tools or None, salt=salt, **options
    )


def _options(
    service: Service,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool | None,
    template_kwargs: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The renderer's options, once what was sent is known to be of a size that can be handled."""
    if not messages:
        raise invalid("`messages` is empty.", param="messages")
    if tools is not None and len(tools) > MAX_TOOLS:
        raise invalid(f"`tools` takes at most {MAX_TOOLS} entries.", param="tools")
    for name in template_kwargs or ():
        if name in _TEMPLATE_RESERVED:
            raise invalid(
                f"`chat_template_kwargs` may not set `{name}`.", param="chat_template_kwargs"
            )
    service.check_size([messages, tools])
    if add_generation_prompt is None:
        add_generation_prompt = not continue_final_message
    return {
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": bool(continue_final_message),
        "template_kwargs": template_kwargs,
    }
