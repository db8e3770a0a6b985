"""The prompts of a text completion: a string, strings, ids, or lists of ids."""

from __future__ import annotations

import asyncio
from typing import Any

from agentkv.engine.serve.errors import invalid
from agentkv.engine.serve.params import check_ids
from agentkv.engine.serve.protocol import MAX_PROMPTS
from agentkv.engine.serve.service import Service
from agentkv.engine.types import IntArray, as_ids


async def read_prompts(
    service: Service, prompt: str | list[Any], param: str = "prompt"
) -> list[IntArray]:
    """Token ids of each prompt. Raises 400 for mixed lists, ids out of range, empty prompts."""
    parts = _split(prompt, param)
    if not parts:
        raise invalid(f"`{param}` is empty.", param=param)
    if len(parts) > MAX_PROMPTS:
        raise invalid(f"`{param}` takes at most {MAX_PROMPTS} prompts.", param=param)
    vocab_size = service.engine.vocab_size
    out: list[IntArray] = []
    for part in parts:
        if isinstance(part, str):
            service.check_size(part)
            ids = await asyncio.to_thread(service.engine.tokenizer.encode_raw, part)
        else:
            ids = as_ids(check_ids(part, vocab_size, param))
        if not len(ids):
            raise invalid(f"`{param}` has no tokens.", param=param)
        out.append(ids)
    return out


def _split(prompt: str | list[Any], param: str) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if all(isinstance(item, str) for item in prompt):
        return list(prompt)
    if _are_ids(prompt):
        return [prompt]
    if all(isinstance(item, list) and _are_ids(item) for item in prompt):
        return list(prompt)
    raise invalid(
        f"`{param}` must be a string, a list of strings, a list of token ids, or a list of such lists.",
        param=param,
        code="invalid_type",
    )


def _are_ids(items: list[Any]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in items)
