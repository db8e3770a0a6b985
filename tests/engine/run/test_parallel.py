"""Two ranks over gloo: the same answers as one, from the same slots, and an end for every fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agentkv.engine import Engine, EngineConfig, SamplingParams
from agentkv.engine.errors import EngineClosed, InvalidRequest, RankFailed
from agentkv.engine.model.shard_llama import ShardedLlama
from agentkv.engine.run import parallel_runner
from agentkv.engine.run.parallel_link import Frames, Kind, pack, send, unpack
from agentkv.engine.run.parallel_runner import ParallelRunner
from agentkv.engine.types import RequestOutput

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {"head_dim": 16, "attention_bias": True}),
    "three": (
        "LlamaConfig",
        {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3},
    ),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"page_size": 1, "max_batch_tokens": 512}),
    "llama-fp8-chunks": ("llama", {"page_size": 16, "max_batch_tokens": 32, "kv_dtype": "fp8"}),
    "qwen3-chunks": ("qwen3", {"page_size": 16, "max_batch_tokens": 32}),
    "qwen3-fp8": ("qwen3", {"page_size": 1, "max_batch_tokens": 512, "kv_dtype": "fp8"}),
    "qwen3-fp8-chunks": ("qwen3", {"page_size": 16, "max_batch_tokens": 32, "kv_dtype": "fp8"}),
}
FAULTS = {"llama": "killed at rest", "qwen3-fp8-chunks": "silent"}
"""How the pairs of the default suite end; these two have each model, page, budget and dtype."""
GREEDY = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def directory(tiny: Any, tiny_llama_dir: Path, tmp_path_factory: Any) -> Callable[[str], Path]:
    """Tiny random models with a tokenizer."""
    vocab = json.loads((tiny_llama_dir / "config.json").read_text())["vocab_size"]

    def make(name: str) -> Path:
        config, options = MODELS[name]
        made: Path = tmp_path_factory.mktemp(name)
        texts = [p for p in tiny_llama_dir.iterdir() if p.name.startswith(("tok", "chat"))]
        weights = tiny(config, vocab_size=vocab, num_hidden_layers=2, **options)[0]
        for path in [*texts, *weights.iterdir()]:
            shutil.copy(path, made / path.name)
        return made

    return make


def start(model: Path, world: int, **options: Any) -> Engine:
    settings = {
        "dtype": "float32",
        "threads": 1,
        "pool_tokens": 2048,
        "check_invariants": True,
        **options,
    }
    return Engine(EngineConfig(model=str(model), tensor_parallel=world, **settings))


def hold(held: threading.Event, go: threading.Event) -> None:
    held.set()
    go.wait(60)


@dataclass
class Pair:
    """The same engine with one rank and with two, and all that both have answered."""

    one: Engine
    two: Engine
    answers: list[tuple[RequestOutput, RequestOutput]]

    @property
    def runner(self) -> ParallelRunner:
        assert isinstance(self.two._core.runner, ParallelRunner)
        return self.two._core.runner

    @property
    def worker(self) -> int:
        """The process of rank 1."""
        assert self.two._core.parts.parallel is not None
        (pid,) = self.two._core.parts.parallel.pids
        return pid

    def ask(self, *prompts: Any) -> list[tuple[RequestOutput, RequestOutput]]:
        """Answers of both to prompts that are all there before the first step."""
        found = []
        for engine in (self.one, self.two):
            held, go = threading.Event(), threading.Event()
            engine._worker.post(partial(hold, held, go))
            # Commands that the worker takes together run before the next step: what is posted
            # before it has begun to wait would be taken apart from the rest.
            assert held.wait(60)
            streams = [engine.stream(prompt, GREEDY) for prompt in prompts]
            go.set()
            found.append([stream.result(120) for stream in streams])
        both = list(zip(*found, strict=True))
        self.answers += both
        return both


@pytest.fixture(
    scope="module",
    params=[c if c in FAULTS else pytest.param(c, marks=pytest.mark.slow) for c in CASES],
)
def pair(request: pytest.FixtureRequest, directory: Callable[[str], Path]) -> Iterator[Pair]:
    name, options = CASES[request.param]
    model = directory(name)
    with start(model, 1, **options) as one, start(model, 2, **options) as two:
        made = Pair(one, two, [])
        worker = made.worker
        yield made
    assert gone(worker)


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def same(both: list[tuple[RequestOutput, RequestOutput]]) -> None:
    for one, two in both:
        assert one.token_ids == two.token_ids
        assert one.cache.cached_tokens == two.cache.cached_tokens


def prompts(rng: np.random.Generator, count: int) -> list[Any]:
    """Prompts that share beginnings of several lengths, as turns of a few conversations do."""
    roots = [rng.integers(5, 250, n) for n in (40, 75, 130)]
    made: list[Any] = []
    for i in range(count):
        before = roots[i % len(roots)] if i < 6 else made[int(rng.integers(0, len(made)))]
        made.append(np.concatenate([before[:200], rng.integers(5, 250, int(rng.integers(1, 30)))]))
    return [p.astype(np.int32) for p in made]


def test_the_same_tokens_and_hits(pair: Pair) -> None:
    for prompt in prompts(np.random.default_rng(11), 20):
        same(pair.ask(prompt))
    hits = [one.cache.cached_tokens for one, _ in pair.answers]
    assert sum(hit >= 32 for hit in hits) >= 12
    assert pair.two.bit_exact == pair.one.bit_exact


def test_a_batch_of_eight(pair: Pair) -> None:
    before = pair.runner.facts()[0].steps
    many = prompts(np.random.default_rng(12), 8)
    same(pair.ask(*many))
    again = pair.ask(*many)
    same(again)
    assert all(
        one.cache.cached_tokens >= len(p) - 16 for (one, _), p in zip(again, many, strict=True)
    )
    assert pair.runner.facts()[0].steps - before < 8 * GREEDY.max_tokens  # type: ignore[operator]


def test_both_ranks_ran_the_same_tables(pair: Pair) -> None:
    """What the tree let rank 0 skip, rank 1 skipped too."""
    same(pair.ask(*prompts(np.random.default_rng(13), 4)))
    first, second = pair.two.ranks()
    assert pair.one.ranks() == []
    for name in ("steps", "computed_tokens", "reused_tokens", "tables"):
        assert getattr(first, name) == getattr(second, name)
    computed = sum(
        two.cache.prompt_tokens - two.cache.cached_tokens + len(two.token_ids) - 1
        for _, two in pair.answers
    )
    assert first.computed_tokens == computed
    assert (first.rank, second.rank) == (0, 1)
    assert (first.pid, second.pid) == (os.getpid(), pair.worker)
    assert first.kv_heads == second.kv_heads == 1
    assert first.kv_bytes + second.kv_bytes == pair.one.kv_bytes == pair.two.kv_bytes
    pair.two.check()
    pair.runner._tally.count(batch_of(3))
    with pytest.raises(RankFailed, match="steps is"):
        pair.two.check()
    pair.runner._tally.steps -= 1


def batch_of(first: int, start: int = 0, end: int = 40) -> Any:
    """A batch that nobody scheduled: tokens `[start, end)` of 40, in slots at the pool's end."""
    from agentkv.engine.sched.batch import ForwardBatch

    row = np.arange(end, dtype=np.int32)
    return ForwardBatch(
        input_ids=first + row[start:],
        positions=row[start:],
        out_slots=2000 + row[start:],
        qo_indptr=np.array([0, end - start], dtype=np.int32),
        kv_indptr=np.array([0, end], dtype=np.int32),
        kv_indices=2000 + row,
        logit_rows=row[: end - start],
    )


def logits(engine: Engine, batch: Any) -> torch.Tensor:
    return engine._worker.ask(lambda: engine._core.runner.forward(batch).clone())


def test_logits_are_close_and_keep_their_bits(pair: Pair) -> None:
    for engine in (pair.one, pair.two):
        engine.flush()
    one, two = logits(pair.one, batch_of(5)), logits(pair.two, batch_of(5))
    assert one.shape == two.shape
    # A number at the edge of two FP8 codes may be stored as either.
    close = 1e-2 if pair.two.kv_dtype_name == "fp8_e4m3" else 1e-4
    assert torch.allclose(one, two, atol=close, rtol=1e-4)
    assert torch.equal(one.argmax(-1), two.argmax(-1))
    assert pair.two.bit_exact  # a prefill that is cut, or was cached, gives the same
    parts = [logits(pair.two, batch_of(5, *cut)) for cut in ((0, 1), (1, 24), (24, 40))]
    assert torch.equal(torch.cat(parts), two)


def running_call(engine: Engine) -> Any:
    """A call in the middle of its answer."""
    stream = engine.stream("the tall tower", SamplingParams(max_tokens=480, ignore_eos=True))
    next(stream)
    return stream


def fail(engine: Engine, fault: str) -> None:
    """Rank 1 of an engine, or rank 0, fails: calls end with the reason, and nothing is left."""
    parallel = engine._core.parts.parallel
    assert parallel is not None
    (worker,) = parallel.pids
    ranks, stream = parallel._ranks, None
    home = ranks.meeting.parent
    if fault == "killed at rest":  # nobody asks for anything while the process dies
        os.kill(worker, signal.SIGKILL)
        reason = r"Rank 1 of 2 \(process \d+\) was ended by SIGKILL"
        engine._worker.thread.join(30)
    elif fault == "killed":
        stream = running_call(engine)
        os.kill(worker, signal.SIGKILL)
        reason = r"Rank 1 of 2 \(process \d+\) was ended by SIGKILL"
    elif fault == "silent":
        ranks._patience = 1.5
        stream = running_call(engine)
        os.kill(worker, signal.SIGSTOP)
        reason = r"Rank 1 of 2 \(process \d+\) has said nothing for 1.5 seconds"
    else:
        runner = engine._core.runner
        assert isinstance(runner, ParallelRunner)

        def broken(batch: Any) -> Any:
            raise ZeroDivisionError("of rank 0")

        stream = running_call(engine)
        runner.own.forward = broken  # type: ignore[method-assign]
        reason = "Rank 0 of 2 failed: ZeroDivisionError: of rank 0"
    if stream is not None:
        with pytest.raises(EngineClosed, match=f"failed while the call ran: {reason}"):
            stream.result(60)
    engine._worker.thread.join(30)
    with pytest.raises(EngineClosed, match=f"The engine failed: {reason}.*create a new one"):
        engine.generate("hello", GREEDY, timeout=30)
    assert not engine.alive
    assert gone(worker)
    assert not home.exists()


def test_then_a_fault_ends_it(pair: Pair, request: pytest.FixtureRequest) -> None:
    """The last test of a pair: its engine is over behind it."""
    fail(pair.two, FAULTS.get(request.node.callspec.params["pair"], "killed"))


@pytest.mark.parametrize("fault", ["killed", "rank 0 fails"])
def test_a_fault_ends_a_call(directory: Callable[[str], Path], fault: str) -> None:
    with start(directory("llama"), 2) as engine:
        fail(engine, fault)


@pytest.mark.slow
def test_of_three_ranks_the_one_that_died_is_named(directory: Callable[[str], Path]) -> None:
    model = directory("three")
    many = prompts(np.random.default_rng(14), 5)
    with start(model, 1) as one:
        expected = [one.generate(p, GREEDY) for p in many]
    with start(model, 3) as three:
        same(list(zip(expected, [three.generate(p, GREEDY) for p in many], strict=True)))
        facts = three.ranks()
        assert [f.rank for f in facts] == [0, 1, 2]
        assert len({f.tables for f in facts}) == len({f.computed_tokens for f in facts}) == 1
        three.check()
        assert three._core.parts.parallel is not None
        pids = three._core.parts.parallel.pids
        stream = running_call(three)
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(EngineClosed, match=rf"Rank 2 of 3 \(process {pids[1]}\) was ended"):
            stream.result(60)
        assert all(gone(pid) for pid in pids)


def test_a_step_that_rank_1_cannot_run(directory: Callable[[str], Path]) -> None:
    with start(directory("llama"), 2) as engine:
        runner = engine._core.runner
        assert isinstance(runner, ParallelRunner)
        good, bad = batch_of(5), batch_of(100_000)
        ranks = runner._ranks
        told = type(ranks).run
        ranks.run = lambda batch: told(ranks, bad)  # type: ignore[method-assign]
        with pytest.raises(RankFailed, match=r"Rank 1 of 2 .* failed: IndexError: index out of"):
            engine._worker.ask(lambda: runner.forward(good))
        engine._worker.thread.join(30)
        assert not engine.alive


@pytest.mark.slow
def test_a_step_that_rank_0_does_not_come_to(directory: Callable[[str], Path]) -> None:
    with start(directory("llama"), 2) as engine:
        assert engine._core.parts.parallel is not None
        ranks = engine._core.parts.parallel._ranks
        ranks.step_seconds = 1.5
        engine._worker.ask(lambda: ranks.run(batch_of(5)))
        engine._worker.thread.join(30)
        with pytest.raises(EngineClosed, match=r"Rank 1 of 2 .* has been in one step for"):
            engine.generate("hello", GREEDY, timeout=30)


def test_a_rank_that_cannot_load(
    directory: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {t.name for t in threading.enumerate()}
    broken, intact = directory("llama"), directory("llama")
    config = json.loads((broken / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (broken / "config.json").write_text(json.dumps(config))
    whole = ShardedLlama.load_part
    monkeypatch.setattr(  # rank 0, in this process, finds all that rank 1 lacks
        ShardedLlama,
        "load_part",
        lambda path, group, **options: whole(intact, group, **options),
    )
    with pytest.raises(RankFailed, match=r"Rank 1 .* failed: The checkpoint lacks the tensor"):
        start(broken, 2)
    assert {t.name for t in threading.enumerate()} <= before


PROGRAM = """
import sys
from agentkv.engine import Engine, SamplingParams
with Engine(
    model=sys.argv[1], tensor_parallel=2, threads=1, pool_tokens=1024, dtype="float32"
) as engine:
    print(*engine._core.parts.parallel.pids, engine._core.parts.parallel._ranks.meeting.parent, flush=True)
    while True:
        engine.generate("hello", SamplingParams(max_tokens=100, ignore_eos=True))
"""


@pytest.mark.slow
def test_no_rank_outlives_rank_0(directory: Callable[[str], Path]) -> None:
    """Killed, or by Ctrl-C, of a program without `if __name__ == "__main__"`."""
    model = directory("llama")
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(model)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for _ in range(2)
    ]
    try:
        told = [program.stdout.readline().split() for program in programs if program.stdout]
        workers, homes = [int(pid) for pid, _ in told], [Path(home) for _, home in told]
        assert all(home.is_dir() for home in homes)
        programs[0].kill()
        os.killpg(programs[1].pid, signal.SIGINT)
        assert "KeyboardInterrupt" in programs[1].communicate(timeout=60)[1]
        assert all(gone(pid) for pid in workers)
        assert not any(home.exists() for home in homes)
    finally:
        for program in programs:
            program.kill()
            program.communicate()


def test_what_cannot_be_is_refused(
    directory: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="at least 1"):
        EngineConfig(tensor_parallel=0)
    with pytest.raises(InvalidRequest, match="1 or 2"):
        EngineConfig(tensor_parallel=3, deterministic=True)
    monkeypatch.setattr(parallel_runner, "Ranks", None)  # no process is started for nothing
    with pytest.raises(InvalidRequest, match="2 KV heads, which cannot be shared out evenly"):
        start(directory("llama"), 3)


def test_frames_and_batches_arrive_as_they_were_sent() -> None:
    import socket

    ours, theirs = socket.socketpair()
    batch = batch_of(7)
    empty = type(batch)(**{n: getattr(batch, n)[:0] for n in batch.__slots__})
    sent = [pack(0, batch), pack(1, empty), b"", pack(2**31 + 2, batch)]
    for payload in sent:
        send(ours, Kind.STEP, payload)
    ours.close()
    frames, found = Frames(), []
    while data := theirs.recv(13):  # in pieces that end anywhere
        found += frames.feed(data)
    theirs.close()
    assert [kind for kind, _ in found] == [Kind.STEP] * 4
    assert [bytes(payload) for _, payload in found] == sent
    for at, number, wanted in ((0, 0, batch), (1, 1, empty), (3, 2, batch)):
        step, got = unpack(found[at][1])
        assert step == number
        for name in batch.__slots__:
            assert getattr(got, name).dtype == np.int32
            assert np.array_equal(getattr(got, name), getattr(wanted, name))
