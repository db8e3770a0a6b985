"""Log-probabilities in the two shapes of OpenAI's API."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentkv.engine.types import TokenLogprob

if TYPE_CHECKING:
    from agentkv.engine.text.tokenizer import Tokenizer

FLOOR = -9999.0
"""JSON has no minus infinity; this is what OpenAI sends in its place."""


def finite(logprob: float) -> float:
    """`logprob`, with minus infinity at the floor."""
    return logprob if math.isfinite(logprob) else FLOOR


def token_text(data: bytes) -> str:
    """A token's bytes as text. Half a character is spelled out: `bytes:\\xf0\\x9f`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{b:02x}" for b in data)


def chat_logprobs(entries: Sequence[TokenLogprob], tokenizer: Tokenizer) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion."""

    def one(token_id: int, logprob: float) -> dict[str, Any]:
        data = tokenizer.token_bytes(token_id)
        return {"token": token_text(data), "logprob": finite(logprob), "bytes": list(data)}

    content = [
        {
            **one(entry.token_id, entry.logprob),
            "top_logprobs": [one(token_id, logprob) for token_id, logprob in entry.top],
        }
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    entries: Sequence[TokenLogprob | None],
    token_ids: Sequence[int],
    tokenizer: Tokenizer,
    *,
    offset: int = 0,
) -> dict[str, Any]:
    """`choices[].logprobs` of a text completion.

    `entries[i]` belongs to `token_ids[i]`; None where there is nothing to predict from (the first
    token of a prompt). `text_offset` counts characters from `offset` on; the tokens of one
    character share the offset at which it begins.
    """
    tokens: list[str] = []
    logprobs: list[float | None] = []
    top: list[dict[str, float] | None] = []
    offsets: list[int] = []
    count = offset
    # As the text itself is made: broken bytes count as the replacement characters they become.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token_id, entry in zip(token_ids, entries, strict=False):
        data = tokenizer.token_bytes(token_id)
        tokens.append(token_text(data))
        held = decoder.getstate()[0]
        # Held bytes become a character of their own when this token does not go on with them.
        broken = len((held + data[:1]).decode("utf-8", "replace")) - 1 if held and data else 0
        offsets.append(count + broken)
        count += len(decoder.decode(data))
        if entry is None:
            logprobs.append(None)
            top.append(None)
            continue
        logprobs.append(finite(entry.logprob))
        best: dict[str, float] = {}
        for other, logprob in entry.top:
            best.setdefault(token_text(tokenizer.token_bytes(other)), finite(logprob))
        top.append(best)
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": top,
        "text_offset": offsets,
    }
