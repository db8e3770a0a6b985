"""Which graph serves which batch, when it is recorded, and when it goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine.attention.layout import Host
from agentkv.engine.model.load import Tokens
from agentkv.engine.run import graphs as module
from agentkv.engine.run.graphs import DecodeGraphs, padded_length, padded_rows
from agentkv.engine.run.staging import Staging
from agentkv.engine.sched.batch import ForwardBatch
from tests.engine.run.fake_device import FakeDevice

PAGE = 16
VOCAB = 4


class Bench:
    """Graphs whose "model" says what it was given: token, position, slot and the sum of its pages."""

    def __init__(self, **settings: Any) -> None:
        self.device = FakeDevice()
        self.bounds: list[tuple[int, int]] = []
        self.graphs = DecodeGraphs(
            self.device,
            Staging(self.device),
            self.forward,
            page_size=PAGE,
            **{"max_rows": 40, "max_len": 5000, **settings},
        )

    def forward(self, tokens: Tokens, slots: torch.Tensor, plan: Any) -> torch.Tensor:
        self.bounds.append((tokens.ids.shape[0], plan.longest))
        paged = plan.paged
        assert plan.decoding == plan.rows == len(tokens.ids) == paged.seqs
        sums = [
            int(paged.kv_indices[a:b].sum())
            for a, b in zip(
                paged.kv_indptr[:-1].tolist(), paged.kv_indptr[1:].tolist(), strict=True
            )
        ]
        lens = paged.kv_lens()
        assert bool((paged.kv_indptr.diff() >= 0).all()) and bool((lens[slots < 0] == 0).all())
        both = (tokens.ids, tokens.positions, slots, torch.tensor(sums) + 1000 * lens)
        return torch.stack([x[tokens.logit_rows.long()].float() for x in both], dim=1)

    def run(self, lengths: list[int], seed: int = 0) -> torch.Tensor:
        batch, host = decoding(lengths, seed)
        assert self.graphs.suits(batch, host)
        return self.graphs.run(batch, host)


def decoding(lengths: list[int], seed: int = 0) -> tuple[ForwardBatch, Host]:
    rng = np.random.default_rng(seed)
    ends = np.cumsum([0, *lengths]).astype(np.int32)
    tables = [rng.permutation(400)[: -(-n // PAGE)] for n in lengths]
    slots = np.concatenate(
        [
            (t[:, None] * PAGE + np.arange(PAGE)).ravel()[:n]
            for t, n in zip(tables, lengths, strict=True)
        ]
    ).astype(np.int32)
    count = np.arange(len(lengths) + 1, dtype=np.int32)
    batch = ForwardBatch(
        input_ids=rng.integers(1, 99, len(lengths)).astype(np.int32),
        positions=(ends[1:] - ends[:-1] - 1).astype(np.int32),
        out_slots=slots[ends[1:] - 1],
        qo_indptr=count,
        kv_indptr=ends,
        kv_indices=slots,
        logit_rows=count[:-1],
    )
    return batch, Host.of(count, ends, slots, PAGE)


def expected(lengths: list[int], seed: int = 0) -> list[list[float]]:
    batch, host = decoding(lengths, seed)
    sums = np.add.reduceat(host.pages, host.indptr[:-1])
    both = (batch.input_ids, batch.positions, batch.out_slots, sums + 1000 * host.lens)
    found: list[list[float]] = np.stack(both, axis=1).astype(float).tolist()
    return found


def test_sizes() -> None:
    assert [padded_rows(n) for n in (1, 2, 3, 5, 8, 9, 17, 64, 65, 97)] == [
        1,
        2,
        4,
        8,
        8,
        16,
        24,
        64,
        96,
        128,
    ]
    assert all(
        padded_rows(n) >= n and padded_rows(padded_rows(n)) == padded_rows(n) for n in range(1, 600)
    )
    assert [padded_length(n) for n in (1, 1024, 1025, 4096, 4097)] == [
        1024,
        1024,
        4096,
        4096,
        16384,
    ]


@pytest.mark.parametrize("lengths", [[1], [16], [17], [16, 33, 1], [5] * 9, [900, 1100, 3]])
def test_every_row_has_its_own_numbers(lengths: list[int]) -> None:
    bench = Bench()
    for seed in range(4):
        assert bench.run(lengths, seed).tolist() == expected(lengths, seed)
    assert bench.graphs.captures == 1 and bench.graphs.replays == 3


def test_recorded_the_second_time_and_shared_by_what_fits() -> None:
    bench = Bench()
    bench.run([10] * 5)
    assert bench.graphs.captures == 0
    bench.run([700] * 6)
    assert bench.graphs.captures == 1
    for lengths in ([3] * 7, [1000] * 8, [1] * 5):
        assert bench.run(lengths).tolist() == expected(lengths)
    assert bench.graphs.captures == 1 and bench.device.graphs[0].replays == 4
    bench.run([3] * 4)
    bench.run([2000] * 8)
    assert bench.graphs.captures == 1
    assert set(bench.bounds) == {(8, 1024), (4, 1024), (8, 4096)}


def test_the_memory_that_graphs_read_never_moves() -> None:
    bench = Bench()
    before = bench.graphs._tables.data_ptr()
    for lengths in ([4000] * 30, [1], [4000] * 30):
        bench.run(lengths)
    assert bench.graphs._tables.data_ptr() == before


def test_what_does_not_suit() -> None:
    bench = Bench(max_rows=10, max_len=64)
    batch, host = decoding([20] * 17)  # a graph for ten has sixteen rows
    assert not bench.graphs.suits(batch, host)
    assert bench.graphs.suits(*decoding([20] * 16))
    assert not bench.graphs.suits(*decoding([1100]))  # 16 rows of 4 pages: 64 entries
    assert bench.graphs.suits(*decoding([1024]))
    batch, host = decoding([20, 20])
    fields = {f: getattr(batch, f) for f in batch.__slots__}
    silent = ForwardBatch(**{**fields, "logit_rows": batch.logit_rows[:1]})
    assert not bench.graphs.suits(silent, host)


def test_the_longest_unused_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GRAPHS", 2)
    bench = Bench()
    for count in (1, 2):
        for _ in range(2):
            bench.run([5] * count)
    bench.run([5])  # now that of two is the older one
    for _ in range(2):
        bench.run([5] * 4)
    one, two, four = bench.device.graphs
    assert [g.released for g in (one, two, four)] == [False, True, False]
    assert bench.graphs.held == 2
    # It comes back as any new one does, and nothing replays what is gone.
    for seed in range(3):
        assert bench.run([5, 6], seed).tolist() == expected([5, 6], seed)
    assert bench.graphs.captures == 4 and one.released


def test_when_they_hold_too_much_all_of_them_go(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(module, "MOST_BYTES", 3 * bench.device.graph_size)
    for count in (1, 2, 4):
        for _ in range(2):
            bench.run([5] * count)
    assert bench.graphs.held == 3
    for _ in range(2):
        assert bench.run([5] * 8).tolist() == expected([5] * 8)
    assert bench.graphs.held == 0 and all(g.released for g in bench.device.graphs)
    assert bench.device.graph_bytes() == 0 and bench.graphs.works
    for seed in range(3):
        assert bench.run([5, 5], seed).tolist() == expected([5, 5], seed)
    assert bench.graphs.held == 1


def test_one_that_alone_is_too_large(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10)
    bench = Bench()
    for _ in range(2):
        assert bench.run([5]).tolist() == expected([5])
    assert not bench.graphs.works and bench.device.graph_bytes() == 0
    assert "without graphs" in caplog.text


def test_logits_of_a_graph_are_not_those_of_the_one_before() -> None:
    bench = Bench()
    for _ in range(2):
        bench.run([5] * 4)
        bench.run([5] * 8)
    first = bench.run([5] * 4, seed=1)
    assert first.tolist() == expected([5] * 4, seed=1)
    where = first.data_ptr()
    second = bench.run([5] * 8, seed=2)
    assert second.tolist() == expected([5] * 8, seed=2)
    assert second.data_ptr() == where  # one piece of memory for all


def test_without_graphs_after_a_failure() -> None:
    bench = Bench()
    bench.device.refuse_graphs = True
    for seed in range(2):
        assert bench.run([7, 8, 9], seed).tolist() == expected([7, 8, 9], seed)
    assert not bench.graphs.suits(*decoding([7, 8, 9]))
