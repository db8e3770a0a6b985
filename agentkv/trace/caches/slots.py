"""llama.cpp's server: a few slots, each with the K/V of the last prompt that it ran.

Without its copy of old slots in host memory (`--cache-ram`).
"""

from __future__ import annotations

import numpy as np

from agentkv.engine.types import IntArray
from agentkv.engine.why import common_prefix
from agentkv.trace.caches.base import Hit, Namespace
from agentkv.trace.call import Call
from agentkv.trace.render import Rendered

SIMILAR = 0.1
"""A slot is preferred to the least recently used one when it has more than this share of a prompt
(`--slot-prompt-similarity`)."""


class SlotCache:
    """`slots` sequences. A call takes the slot that shares most with it, else the least recently
    used, of which it keeps what the two have in common."""

    capped = False

    def __init__(self, slots: int = 4) -> None:
        if slots < 1:
            raise ValueError(f"a server has at least one slot, not {slots}.")
        self._slots: list[tuple[Namespace, IntArray]] = [((), _NONE) for _ in range(slots)]
        self._used = [0] * slots
        self._clock = 0

    @property
    def name(self) -> str:
        return f"llama.cpp, {len(self._slots)} slots"

    def call(self, call: Call, rendered: Rendered, namespace: Namespace) -> Hit:
        ids = rendered.prompt.token_ids
        shared = [
            common_prefix(ids, held) if space == namespace else 0 for space, held in self._slots
        ]
        chosen = int(np.argmax(shared))
        if shared[chosen] <= SIMILAR * len(ids):
            chosen = int(np.argmin(self._used))
        self._clock += 1
        self._used[chosen] = self._clock
        # The last token of an answer was sampled, and never computed.
        full = rendered.full
        self._slots[chosen] = (namespace, full[:-1] if len(rendered.answer_ids) else full)
        most = max(0, rendered.tokens - (1 if rendered.per_id == 1 else 0))
        cached = min(shared[chosen] * rendered.per_id, most)
        return Hit(cached, max(cached, min(max(shared) * rendered.per_id, most)))


_NONE = np.empty(0, dtype=np.int32)
