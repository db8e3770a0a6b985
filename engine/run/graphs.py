"""Decoding steps as recorded graphs: one launch in the place of hundreds.

A graph is recorded for a number of sequences and a bound on their lengths, and serves every batch that
is no larger: rows that are too many are padding. A padding row has token 0 at position 0, no slot (its
K and V are not written) and a sequence of no page (its attention reads nothing and is 0).

    batch of 5, lengths up to 700 -> padded to 8 rows, bound 1024

A graph reads its tables from one piece of memory that all graphs share, and writes its logits to another:
their addresses never change, and each step's copy brings new contents. Graphs are recorded when a shape
comes up the second time. When there are too many, the one that was not used for the longest time goes.
What they compute with in between is in memory that they share, too, and that only comes back as a whole:
when it is too much, all of them go, and those that are still needed are recorded again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch

from agentkv.engine.attention.layout import Host
from agentkv.engine.attention.packing import places, unpack
from agentkv.engine.attention.triton import TritonPlan
from agentkv.engine.device import Device, Graph
from agentkv.engine.model.load import Tokens
from agentkv.engine.run.staging import Staging
from agentkv.engine.sched.batch import ForwardBatch
from agentkv.engine.types import IntArray
from agentkv.kernels.paged import Paged

log = logging.getLogger("agentkv.engine")

MOST_ROWS = 512
"""Larger batches keep the device busy without."""

MOST_GRAPHS = 64
MOST_BYTES = 1 << 30
"""What all graphs together may hold, logits apart; set aside when the pool is sized."""

MOST_PAGES = 1 << 22
"""Entries of the page table (16 MiB)."""

LEAST_LENGTH = 1024

Key = tuple[int, int]
"""Rows and the bound on lengths."""

Forward = Callable[[Tokens, torch.Tensor, TritonPlan], torch.Tensor]
"""`forward(tokens, slots, plan)`: logits, by kernels alone."""


def fill(ids: torch.Tensor, before: torch.Tensor) -> None:
    """Write token `before[row]` to where `ids` (int32, on the device) says `unknown(row)`. Not part of a
    graph: `before` is new memory in each step."""
    row = (-1 - ids).clamp_(min=0)
    ids.copy_(torch.where(ids < 0, before.index_select(0, row), ids))


def padded_rows(count: int) -> int:
    """Rows of the graph that serves so many sequences: powers of two, then multiples of 8, then of 32."""
    if count <= 8:
        return 1 << (count - 1).bit_length()
    step = 8 if count <= 64 else 32
    return -(-count // step) * step


def padded_length(longest: int) -> int:
    """Bound on lengths: powers of four from 1024 on (in the bound's own pieces attention is cut)."""
    bound = LEAST_LENGTH
    while bound < longest:
        bound *= 4
    return bound


class DecodeGraphs:
    """Graphs of one model over one pool."""

    def __init__(
        self,
        device: Device,
        staging: Staging,
        forward: Forward,
        *,
        page_size: int,
        max_rows: int,
        max_len: int,
    ) -> None:
        self._device = device
        self._staging = staging
        self._forward = forward
        self._page = page_size
        self._most = padded_rows(min(max_rows, MOST_ROWS))
        self._pages = min(MOST_PAGES, self._most * -(-max_len // page_size))
        size = places(self._lengths(self._most, self._pages))[1]
        self._tables = torch.zeros(size, dtype=torch.int32, device=device.where)
        self._count = torch.arange(self._most + 1, dtype=torch.int32, device=device.where)
        self._known: OrderedDict[Key, Graph | None] = OrderedDict()
        self._logits: torch.Tensor | None = None
        self.works = True
        """False once a graph could not be recorded."""
        self.replays = 0
        self.captures = 0

    @property
    def held(self) -> int:
        """Graphs there are."""
        return sum(found is not None for found in self._known.values())

    def suits(self, batch: ForwardBatch, host: Host) -> bool:
        """Whether a batch, one row a sequence and all of them wanted, can go by a graph."""
        count = len(host.lens)
        return (
            self.works
            and count <= self._most
            and len(host.pages) <= self._pages
            and len(batch.logit_rows) == len(batch.input_ids) == count
        )

    def run(
        self, batch: ForwardBatch, host: Host, before: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits of a batch that `suits`, valid until the next call. `before`: see `fill`."""
        count = len(host.lens)
        key = (padded_rows(count), padded_length(int(host.lens.max())))
        ids, *_ = self._staging.send(self._padded(batch, host, key[0]), self._tables)
        if before is not None:
            fill(ids, before)
        return self._result(key)[:count]

    def _result(self, key: Key) -> torch.Tensor:
        if key not in self._known:
            # Runs it once by itself, which also compiles what is not compiled yet.
            self._known[key] = None
            return self._work(*key)
        graph = self._known[key]
        if graph is None:
            graph = self._record(key)
            if graph is None:
                return self._work(*key)
        self._known.move_to_end(key)
        graph.replay()
        self.replays += 1
        assert self._logits is not None
        return self._logits[: key[0]]

    def _work(self, rows: int, longest: int) -> torch.Tensor:
        """What a graph holds: the whole forward of the padded batch in the tables."""
        lengths = self._lengths(rows, self._pages)
        ids, positions, slots, indptr, last, pages = unpack(self._tables, lengths)
        paged = Paged(self._count[: rows + 1], indptr, pages, last, self._page)
        plan = TritonPlan(rows, rows, longest, None, paged, None)
        tokens = Tokens(ids=ids, positions=positions, logit_rows=self._count[:rows])
        logits = self._forward(tokens, slots, plan)
        if self._logits is None:
            self._logits = logits.new_empty((self._most, logits.shape[1]))
        return logits

    def _record(self, key: Key) -> Graph | None:
        """A new graph; None when there can be none now."""

        def work() -> None:
            assert self._logits is not None
            self._logits[: key[0]].copy_(self._work(*key))

        try:
            graph = self._device.capture(work)
        except Exception:
            log.exception("decoding goes on without graphs: one could not be recorded")
            self._give_up()
            return None
        self.captures += 1
        self._known[key] = graph
        if self._device.graph_bytes() > MOST_BYTES:
            if self.held == 1:
                log.warning(
                    "decoding goes on without graphs: a single one takes %d bytes", MOST_BYTES
                )
                self._give_up()
            else:
                self._release(list(self._known))
            return None
        there = [
            other for other, found in self._known.items() if found is not None and other != key
        ]
        self._release(there[: max(0, len(there) + 1 - MOST_GRAPHS)])
        return graph

    def _give_up(self) -> None:
        self.works = False
        self._release(list(self._known))

    def _release(self, keys: list[Key]) -> None:
        """Forget these: what comes up again is recorded again."""
        for key in keys:
            graph = self._known.pop(key)
            if graph is not None:
                graph.release()

    @staticmethod
    def _lengths(rows: int, pages: int) -> list[int]:
        """Of ids, positions, slots, indptr, tokens in last pages, and pages."""
        return [rows, rows, rows, rows + 1, rows, pages]

    def _padded(self, batch: ForwardBatch, host: Host, rows: int) -> list[IntArray]:
        """The tables. That of the pages comes last, and what is behind its end is not read."""
        more = rows - len(host.lens)
        return [
            np.pad(batch.input_ids, (0, more)),
            np.pad(batch.positions, (0, more)),
            np.pad(batch.out_slots, (0, more), constant_values=-1),
            np.pad(host.indptr, (0, more), mode="edge"),
            np.pad(host.last, (0, more), constant_values=1),
            host.pages,
        ]
