"""`Verdicts`: what the last calls reused and why not more, for who asks later by request id.

Each was judged once, at its admission, by `agentkv.engine.why`. Kept as JSON and bounded both in
number and in bytes: a long conversation has a segment for each message.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from agentkv.engine.serve.record import Asked
from agentkv.engine.serve.usage import miss_block
from agentkv.engine.types import CacheFacts

if TYPE_CHECKING:
    from agentkv.engine.serve.job import Call

SCHEMA = 1
MOST = 1024
MOST_BYTES = 4 << 20

_Key = tuple[str | None, str]


class Verdicts:
    """By tenant and request id. Not thread-safe: it lives on the event loop."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[_Key, dict[int, bytes]] = OrderedDict()
        self._bytes = 0

    def put(
        self, request_id: str, asked: Asked, number: int, call: Call, facts: CacheFacts
    ) -> None:
        """Keep the verdict of one call. One whose id comes again takes the place of the older."""
        key = (asked.tenant, request_id)
        calls = self._kept.pop(key, {})
        if number in calls:
            # The id came again: nothing of the earlier request is left under it.
            self._bytes -= sum(map(len, calls.values()))
            calls = {}
        calls[number] = msgspec.json.encode(_verdict(asked, call, facts))
        self._bytes += len(calls[number])
        self._kept[key] = calls
        while self._kept and (len(self._kept) > self.most or self._bytes > self._most_bytes):
            _, old = self._kept.popitem(last=False)
            self._bytes -= sum(map(len, old.values()))

    def get(self, request_id: str, tenant: str | None) -> dict[str, Any] | None:
        """The verdict on a request: of its only call, or of the first, with all of them as `calls`."""
        kept = self._kept.get((tenant, request_id))
        if kept is None:
            return None
        calls = [msgspec.json.decode(kept[number]) for number in sorted(kept)]
        out = {"schema": SCHEMA, "request_id": request_id, **calls[0]}
        return out if len(calls) == 1 else {**out, "calls": calls}

    def latest(self, tenant: str | None, most: int) -> list[dict[str, Any]]:
        """The last calls of a tenant, newest first."""
        out: list[dict[str, Any]] = []
        for (owner, request_id), calls in reversed(self._kept.items()):
            if owner != tenant:
                continue
            for number in sorted(calls, reverse=True):
                if len(out) == most:
                    return out
                out.append({"request_id": request_id, **msgspec.json.decode(calls[number])})
        return out

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)


def _verdict(asked: Asked, call: Call, facts: CacheFacts) -> dict[str, Any]:
    return {
        "time": round(asked.time, 3),
        "session": call.session,
        "prompt_tokens": facts.prompt_tokens,
        "cached_tokens": facts.cached_tokens,
        "cached_by_tier": {"device": 0, "host": 0, "disk": 0, **facts.cached_by_tier},
        "reusable_tokens": facts.reusable_tokens,
        "resident_tokens": facts.resident_tokens,
        "page_size": facts.page_size,
        "miss": miss_block(facts.miss, quote=call.session is not None),
        "segments": [
            {"name": name, "tokens": tokens, "cached": cached}
            for name, tokens, cached in facts.span_cached
        ],
    }
