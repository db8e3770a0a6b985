"""Rank 0 of a tensor-parallel engine: what `Engine` asks of it, in the order in which it asks.

Parallel(...)   starts the other ranks          each loads its own part of the weights
load()          this rank's part                meets the others
fewest(...)     how large the pool may be       how large it may be there
runner(...)     sends the size of the pool      each makes its part of the pool
copies(...)     sends the size of the host tier each makes its part of that
forward         sends the batch, runs it        runs it
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import torch

from agentkv.engine.config import EngineConfig
from agentkv.engine.errors import EngineError, InvalidRequest, RankFailed
from agentkv.engine.kv.copies import Copies
from agentkv.engine.kv.pool import KVPool
from agentkv.engine.model.shard import Shard
from agentkv.engine.model.shard_llama import ShardedLlama, shareable
from agentkv.engine.run.parallel import Ranks
from agentkv.engine.run.parallel_copies import RankCopies, host_settings
from agentkv.engine.run.parallel_facts import RankFacts, Tally, disagreement
from agentkv.engine.run.parallel_group import Group, PeerLost
from agentkv.engine.run.parallel_link import Kind, dumps, loads
from agentkv.engine.run.sampler import Sampler
from agentkv.engine.sched.batch import ForwardBatch


class Runner(Protocol):
    """Runs batches over a pool: `ModelRunner`, and what stands for it on other devices."""

    pool: KVPool
    bit_exact: bool

    def forward(self, batch: ForwardBatch) -> torch.Tensor: ...


class ParallelRunner:
    """A runner whose batches run on all ranks. `bit_exact` for two ranks at most: in what order three
    or more numbers are added depends on where in the batch they stand."""

    def __init__(self, own: Runner, ranks: Ranks, *, bit_exact: bool) -> None:
        self.own = own
        self.pool = own.pool
        self.bit_exact = bit_exact
        self._ranks = ranks
        self._tally = Tally()

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """As the own runner's. Raises `RankFailed`, after which nothing runs any more."""
        try:
            self._ranks.run(batch)
            self._tally.count(batch)
            return self.own.forward(batch)
        except Exception as error:
            raise self._ranks.explain(error) from error

    def facts(self) -> list[RankFacts]:
        """What each rank has computed, by rank."""
        return [self._tally.facts(0, self.pool), *self._ranks.facts()]

    def check(self) -> None:
        """Raises `RankFailed` unless all ranks were given the same tables."""
        if found := disagreement(self.facts()):
            raise RankFailed(f"The ranks have run different batches: {found}.", rank=0)


class Parallel:
    """The ranks of one engine, seen from rank 0. `where`: rank 0's device. `failed`: called from
    another thread when one is lost.

    Raises `InvalidRequest` when the model or the machine cannot be shared out like this.
    """

    def __init__(
        self,
        config: EngineConfig,
        directory: Path,
        *,
        dtype: torch.dtype,
        where: torch.device,
        failed: Callable[[RankFailed], None],
    ) -> None:
        if os.name != "posix":
            raise InvalidRequest("tensor_parallel needs Linux or macOS.", param="tensor_parallel")
        self.world = world = config.tensor_parallel
        shareable(directory, world)
        self._directory, self._dtype, self._where = directory, dtype, where
        first = where.index or 0
        if where.type == "cuda" and first + world > torch.cuda.device_count():
            raise InvalidRequest(
                f"tensor_parallel is {world}, and there are {torch.cuda.device_count() - first} GPUs "
                f"from number {first} on.",
                param="tensor_parallel",
            )
        threads = config.threads
        if threads is None:
            # They share the processors, and would wait for each other's threads.
            threads = max(1, torch.get_num_threads() // world)
            torch.set_num_threads(threads)
        common = {
            "directory": str(directory),
            "dtype": str(dtype).removeprefix("torch."),
            "threads": threads,
        }
        own = asdict(config)
        on = [where.type if where.type == "cpu" else f"cuda:{first + r}" for r in range(world)]
        self._ranks = Ranks([{**common, "config": own | {"device": d}} for d in on[1:]], failed)
        if where.type == "cuda":
            # NCCL queues an exchange and returns, so that nobody notices who never comes to it.
            self._ranks.step_seconds = self._ranks.exchange_seconds

    @property
    def pids(self) -> list[int]:
        """Of the other ranks' processes."""
        return self._ranks.pids

    def load(self) -> ShardedLlama:
        """This rank's part of the model, once every rank has its own. Raises `RankFailed` with the
        reason of one that has not."""
        group = Group(Shard(0, self.world), self._where, self._ranks.exchange_seconds)
        self._ranks.abort = group.abort
        model = ShardedLlama.load_part(
            self._directory, group, dtype=self._dtype, device=self._where
        )
        self._ranks.wait(Kind.LOADED)
        self._ranks.tell(Kind.JOIN)
        group.connect(self._ranks.meeting)
        self._group = group
        return model

    def fewest(self, tokens: int) -> int:
        """The smallest of all ranks' numbers: the size of a pool that each has room for."""
        return self._group.fewest(tokens)

    def runner(
        self, tokens: int, make: Callable[[], tuple[Runner, Sampler]]
    ) -> tuple[ParallelRunner, Sampler]:
        """`make` the own runner while the others make theirs, over pools of `tokens` slots."""
        self._ranks.tell(Kind.POOL, dumps({"tokens": tokens}))
        own, sampler = make()
        others = [bool(loads(found)["bit_exact"]) for found in self._ranks.ready()]
        exact = self.world == 2 and own.bit_exact and all(others)
        return ParallelRunner(own, self._ranks, bit_exact=exact), sampler

    def copies(self, own: Copies) -> Copies:
        """Copies between the pools and host pools of all ranks, which the others make now; `own`: of
        this rank."""
        self._ranks.tell(Kind.HOST, dumps(host_settings(own.host)))
        return RankCopies(own, self._ranks)

    def explain(self, error: BaseException) -> BaseException:
        """What to tell the user of an error while loading: the failing rank's own reason."""
        if isinstance(error, PeerLost):
            return self._ranks.explain(error)
        if isinstance(error, EngineError):
            return error
        return self._ranks.failure or error  # an exchange that was aborted fails in many ways

    def close(self) -> None:
        """End the other ranks. Closing twice does nothing."""
        self._ranks.close()
