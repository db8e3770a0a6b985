"""The segments of a prompt that another server counted only as a whole: an estimate.

The totals are the server's. How they divide is computed here, in the order in which most chat
templates write a request: tools, then the messages. With OpenAI's public tokenizer where its file
is on this machine already (nothing is downloaded for an estimate), by the length of the texts in
UTF-8 otherwise; either way in proportion, so that the parts add up to the server's total.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkv.client.base import CallRequest, ChatRequest
from agentkv.prompt.prompt import Prompt
from agentkv.report.parts import SegmentUse

if TYPE_CHECKING:
    import tiktoken

PER_MESSAGE = 4
"""Tokens of role and borders that a template writes around a message, roughly."""
BYTES_PER_TOKEN = 4.0
LONGEST = 200_000
"""Characters; longer texts are estimated by their length, which takes no time."""
_ENCODING = "o200k_base"
_URL = f"https://openaipublic.blob.core.windows.net/encodings/{_ENCODING}.tiktoken"
_KEPT = 4096
_counts: OrderedDict[tuple[int, int], int] = OrderedDict()
_lock = threading.Lock()


@cache
def encoding() -> tiktoken.Encoding | None:
    """OpenAI's tokenizer, if its file is in tiktoken's cache; never over the network."""
    folder = next(
        (os.environ[n] for n in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR") if n in os.environ),
        os.path.join(tempfile.gettempdir(), "data-gym-cache"),
    )
    if not folder or not (Path(folder) / hashlib.sha1(_URL.encode()).hexdigest()).is_file():
        return None
    import tiktoken

    return tiktoken.get_encoding(_ENCODING)


def tokens_of(text: str) -> float:
    """About how many tokens a text is."""
    known = encoding() if len(text) <= LONGEST else None
    if known is None:
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        return size / BYTES_PER_TOKEN
    key = (len(text), hash(text))
    with _lock:
        found = _counts.get(key)
        if found is not None:
            _counts.move_to_end(key)
            return found
    count = len(known.encode_ordinary(text))
    with _lock:
        _counts[key] = count
        while len(_counts) > _KEPT:
            _counts.popitem(last=False)
    return count


def weigh(request: CallRequest) -> list[tuple[SegmentUse, float]]:
    """The segments of a request in order, and about how many tokens each is."""
    if not isinstance(request, ChatRequest):
        return [(SegmentUse("prompt", "question", None, 0, 0), tokens_of(request.prompt))]
    return weigh_chat(request.messages, request.tools)


def weigh_chat(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[tuple[SegmentUse, float]]:
    """As `weigh`, for messages and tools."""
    prompt = Prompt.build(messages, tools)
    out: list[tuple[SegmentUse, float]] = []
    if prompt.tools:
        weight = sum(tokens_of(s.content) for s in prompt.tool_segments)
        out.append((SegmentUse("tools", "tools", None, 0, 0), weight))
    for index, message in enumerate(prompt.messages):
        own = [
            (
                SegmentUse(u.name, u.kind, u.stability if u.declared else None, 0, 0),
                tokens_of(u.content),
            )
            for u in message.units
        ]
        extra = float(PER_MESSAGE)
        calls = message.extras.get("tool_calls")
        if calls:
            functions = [c.get("function", c) for c in calls if isinstance(c, Mapping)]
            extra += tokens_of(json.dumps(functions, ensure_ascii=False, default=str))
        if not own:
            own = [(SegmentUse(f"messages[{index}]", "history", None, 0, 0), 0.0)]
        own[0] = (own[0][0], own[0][1] + extra)
        out.extend(own)
    return out


def about(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> int:
    """About how many tokens messages and tools are."""
    return round(sum(weight for _, weight in weigh_chat(messages, tools)))


def split(request: CallRequest, prompt_tokens: int, cached_tokens: int) -> tuple[SegmentUse, ...]:
    """The segments of `request`, whose tokens add up to `prompt_tokens`, the first
    `cached_tokens` of them cached: what a server reuses is the beginning of a prompt."""
    weighed = weigh(request)
    total = sum(weight for _, weight in weighed)
    if not total or prompt_tokens <= 0:
        return ()
    exact = [weight * prompt_tokens / total for _, weight in weighed]
    counts = [int(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_rest[: prompt_tokens - sum(counts)]:
        counts[i] += 1
    out: list[SegmentUse] = []
    left = cached_tokens
    for (use, _), count in zip(weighed, counts, strict=True):
        cached = min(left, count)
        left -= cached
        out.append(SegmentUse(use.name, use.kind, use.stability, count, cached))
    return tuple(out)
