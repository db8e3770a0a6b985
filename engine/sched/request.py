"""One request as the scheduler sees it: ids, slots, and who owns which of them.

    position   0 ........ tree_owned ........ committed ........ scheduled ........ allocated
    K/V        in the tree  computed, private   under way           empty
    freed by   the tree     KVCache.release     KVCache.release     KVCache.release

The marks only grow while a request runs, and one function, `KVCache.release`, gives everything from
`tree_owned` on back, at finish, abort and retraction alike.

`length` counts prompt and output, `known` how many of these ids are known: a step that is under way
will add one, and the next step can be planned before it has. Until then the id is `unknown(row)`. The
last token has no K/V yet, so `scheduled <= length - 1` once decoding.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from agentkv.engine.kv.eviction import Marks
from agentkv.engine.kv.tree import Namespace, Node
from agentkv.engine.types import FinishReason, IntArray

if TYPE_CHECKING:
    from agentkv.engine.kv.costs import Estimate
    from agentkv.engine.kv.tiers import Transfer


def unknown(row: int) -> int:
    """Stands for the id that row `row` of those that sample in the step under way will give: below 0."""
    return -1 - row


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Request:
    """State of one sequence. Plain data: `Scheduler` and `KVCache` are its only writers.

    `max_new`: how many tokens may be sampled; 0 prefills only. `stop_ids` end the request once
    `min_new` tokens are there. `score_from`: first prompt position whose log-probability is wanted,
    or None; it bounds the match, since a cached token has no logits. `marks`: the roles of the
    prompt's tokens. `prefetch`: bring back what lower tiers have of the prompt, and end there.
    """

    __slots__ = (
        "aborted",
        "allocated",
        "cached_tokens",
        "committed",
        "computed",
        "finish_reason",
        "generation",
        "handle",
        "held",
        "id",
        "ids",
        "known",
        "known_tokens",
        "length",
        "load",
        "load_estimate",
        "load_tried",
        "loaded",
        "looked",
        "marks",
        "max_new",
        "min_new",
        "namespace",
        "passed_over",
        "passes",
        "prefetch",
        "prompt_len",
        "published",
        "retractions",
        "scheduled",
        "score_next",
        "slots",
        "status",
        "stop_ids",
        "stop_reason",
        "tree_owned",
    )

    def __init__(
        self,
        request_id: str,
        prompt: IntArray,
        *,
        max_new: int,
        namespace: Namespace = (),
        min_new: int = 0,
        stop_ids: frozenset[int] = frozenset(),
        score_from: int | None = None,
        marks: Marks = (),
        prefetch: bool = False,
    ) -> None:
        if len(prompt) == 0:
            raise ValueError("a request needs at least one prompt token")
        self.id = request_id
        self.namespace = namespace
        self.prompt_len = len(prompt)
        self.max_new = max_new
        self.min_new = min_new
        self.stop_ids = stop_ids
        self.score_next = None if score_from is None else max(1, score_from)
        self.marks = marks
        self.prefetch = prefetch
        self.ids = np.empty(len(prompt) + min(max_new, 256), dtype=np.int32)
        self.ids[: len(prompt)] = prompt
        self.length = self.known = len(prompt)
        self.slots = np.empty(len(self.ids), dtype=np.int32)
        self.tree_owned = 0
        self.committed = 0
        self.scheduled = 0
        self.allocated = 0
        self.published = True
        """False once another request published the same tokens first: ours stay private (B)."""
        self.handle: Node | None = None
        self.generation = -1
        self.status = Status.WAITING
        self.aborted = False
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | None = None
        self.cached_tokens: int | None = None
        """Fixed at the first admission, never changed by retraction (P)."""
        self.known_tokens = 0
        self.computed = 0
        """Tokens whose K/V was published when the request last gave its pages back."""
        self.passes = 0
        self.passed_over = False
        """The last step took others' prompts in the place of more of ours."""
        self.retractions = 0
        self.load: Transfer | None = None
        """The copy from a lower tier that the request waits for."""
        self.load_tried = False
        self.looked = -1
        """The tree's generation when lower tiers were asked what they have of the prompt."""
        self.load_estimate: Estimate | None = None
        self.loaded: dict[str, int] = {}
        """Tokens that were brought back for this request, by tier."""
        self.held: Node | None = None
        """Locks what was loaded until the request opens."""

    @property
    def tokens(self) -> IntArray:
        """Prompt and sampled tokens so far: int32 `[known]`."""
        return self.ids[: self.known]

    @property
    def sampled(self) -> int:
        return self.length - self.prompt_len

    @property
    def output(self) -> IntArray:
        return self.ids[self.prompt_len : self.known]

    @property
    def last(self) -> int:
        """Tokens that will ever have K/V: all but the last sampled one."""
        return self.prompt_len + max(0, self.max_new - 1)

    @property
    def pending(self) -> int:
        """Tokens whose K/V nothing computes yet."""
        return self.length - self.scheduled

    @property
    def prefilling(self) -> bool:
        """True until a step computes the last known token."""
        return self.pending > 1 or self.sampled == 0

    @property
    def exhausted(self) -> bool:
        """Nothing is left to plan: the step under way is its last."""
        return self.pending == 0 or (0 < self.max_new <= self.sampled)

    @property
    def waits(self) -> bool:
        """In the queue, and still wanted."""
        return self.status is Status.WAITING and not self.aborted

    @property
    def match_limit(self) -> int:
        """At most `n - 1` tokens may come from the cache, so that one position yields logits (H);
        all of them where nothing will be computed."""
        if self.prefetch:
            return self.length
        limit = self.length - 1
        if self.score_next is not None and self.score_next < self.prompt_len:
            limit = min(limit, self.score_next - 1)
        return limit

    def expect(self, row: int) -> None:
        """One more token, whose id row `row` of the step under way will give."""
        if self.length == len(self.ids):
            self.ids = np.concatenate([self.ids, np.empty(256, dtype=np.int32)])
        self.ids[self.length] = unknown(row)
        self.length += 1

    def learn(self, token: int) -> None:
        """The first id that was not known."""
        self.ids[self.known] = token
        self.known += 1

    def forget(self) -> None:
        """Expect nothing any more."""
        self.length = self.known

    def set_slots(self, start: int, slots: IntArray) -> None:
        end = start + len(slots)
        if end > len(self.slots):
            grown = np.empty(max(end + 256, 2 * len(self.slots)), dtype=np.int32)
            grown[: len(self.slots)] = self.slots
            self.slots = grown
        self.slots[start:end] = slots
