"""llama.cpp's server: a few slots, each with the K/V of the last prompt that it ran."""

from __future__ import annotations

import numpy as np

from agentkv.engine.types import IntArray
from agentkv.engine.why import common_prefix
from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

SIMILAR = 0.1
"""Share of a prompt that a slot must have in common with it to be preferred to the oldest slot
(`--slot-prompt-similarity`, default 0.1 in recent versions)."""


class SlotCache:
    """`slots` sequences. A call takes the slot that shares most with it, else the oldest one."""

    capped = False

    def __init__(self, slots: int = 4) -> None:
        self.name = f"llama.cpp, {slots} slots"
        self._slots: list[tuple[Namespace, IntArray]] = [((), _NONE) for _ in range(slots)]
        self._used = [0] * slots
        self._clock = 0

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        ids = rendered.prompt.token_ids
        shared = [
            common_prefix(ids, held) if space == namespace else 0 for space, held in self._slots
        ]
        best = int(np.argmax(shared))
        if not shared[best] or shared[best] < SIMILAR * len(ids):
            best = int(np.argmin(self._used))
        limit = len(ids) if rendered.per_id > 1 else len(ids) - 1
        cached = min(shared[best], limit) * rendered.per_id
        self._clock += 1
        self._used[best] = self._clock
        self._slots[best] = (namespace, rendered.full)
        cached = min(cached, rendered.tokens)
        return Hit(cached, min(max(max(shared) * rendered.per_id, cached), rendered.tokens))


_NONE = np.empty(0, dtype=np.int32)
