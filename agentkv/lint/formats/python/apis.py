"""Calls that send a prompt, by how they are spelled."""

from __future__ import annotations

import re
from typing import NamedTuple


class Api(NamedTuple):
    name: str
    messages: tuple[str, ...]
    """Arguments that hold messages (or the text), the first that is there."""
    system: tuple[str, ...] = ()
    first: bool = False
    """The first positional argument holds the messages."""
    needs: tuple[str, ...] = ()
    """One of these keyword arguments must be there."""


_RAW = r"(?:\.with_raw_response|\.with_streaming_response)?"
_TABLE: list[tuple[re.Pattern[str], Api]] = [
    (re.compile(p), api)
    for p, api in (
        (
            rf"chat\.completions{_RAW}\.(?:create|parse|stream|create_with_completion|create_partial|create_iterable)$|ChatCompletion\.a?create$",
            Api("openai", ("messages",)),
        ),
        (
            rf"(?:^|\.)responses{_RAW}\.(?:create|parse|stream)$",
            Api("openai", ("input",), ("instructions",)),
        ),
        (
            rf"(?:^|\.)messages{_RAW}\.(?:create|stream|parse|count_tokens)$",
            Api("anthropic", ("messages",), ("system",), needs=("messages",)),
        ),
        (
            rf"(?:^|[a-z_)]\.)completions{_RAW}\.create$|Completion\.a?create$",
            Api("openai", ("prompt", "messages")),
        ),
        (
            r"(?:^|\.)litellm\.(?:a?completion|batch_completion|a?text_completion|a?responses)$",
            Api("litellm", ("messages", "input", "prompt"), ("instructions",)),
        ),
        (
            r"(?:^|\.)(?:a?completion|completion_with_retry|acompletion_with_retry)$",
            Api("litellm", ("messages",), needs=("messages",)),
        ),
        (r"(?:^|\.)ollama\.(?:chat|generate)$", Api("ollama", ("messages", "prompt"), ("system",))),
        (
            r"\.converse(?:_stream)?$",
            Api("bedrock", ("messages",), ("system",), needs=("messages", "modelId")),
        ),
        (r"\.invoke_model(?:_with_response_stream)?$", Api("bedrock", ("body",), needs=("body",))),
        (
            r"\.(?:generate_content|generate_content_stream|generate_content_async)$",
            Api("gemini", ("contents",), first=True),
        ),
        (
            r"(?:chat|send_message|send_message_async|send_message_stream|chat_stream|complete|chat\.complete|chat\.stream)$",
            Api(
                "unknown",
                ("messages", "message"),
                ("system", "preamble"),
                needs=("messages", "message"),
            ),
        ),
        (r"\.apply_chat_template$", Api("unknown", ("conversation", "messages"), first=True)),
        (r"(?:^|\.)(?:caches|cachedContents)\.create$", Api("gemini", ("contents",))),
    )
]

SETTINGS = (
    "model",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "cache_salt",
    "tool_choice",
    "toolChoice",
    "response_format",
    "text_format",
    "text",
    "thinking",
    "reasoning_effort",
    "reasoning",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "output_config",
    "output_format",
    "modelId",
    "response_model",
    "format",
    "web_search_options",
    "betas",
)

AGENTS = re.compile(
    r"(?:^|\.)(?:create_agent|create_react_agent|create_deep_agent|create_tool_calling_agent|"
    r"create_openai_tools_agent|create_openai_functions_agent|create_structured_chat_agent|"
    r"create_supervisor|create_swarm|initialize_agent|async_create_deep_agent|"
    r"\w*Agent|GenerativeModel|OpenAIAssistantV2Runnable|assistants\.create|assistants\.update|Session)$"
)
SYSTEM_WORDS = (
    "system_prompt",
    "system_message",
    "system_instruction",
    "system_instructions",
    "sys_prompt",
    "system_text",
    "systemInstruction",
    "instructions",
    "instruction",
    "system",
    "state_modifier",
    "messages_modifier",
    "preamble",
    "persona",
)
AGENT_WORDS = ("prompt", "backstory", "role", "goal", "description")


def api_of(callee: str, kwargs: dict[str, object] | set[str]) -> Api | None:
    for pattern, api in _TABLE:
        if pattern.search(callee) and (not api.needs or any(n in kwargs for n in api.needs)):
            return api
    return None
