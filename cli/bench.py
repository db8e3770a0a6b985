"""`agentkv bench`: tables of speed, bookkeeping and exactness. Exit status 1 if a target is missed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkv.cli.output import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkv.bench.check import Report

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure speed, bookkeeping and exactness on this machine.",
)

MODEL = "smollm2-135m"
Model = Annotated[str, typer.Option(help="A known model, a directory, or a Hugging Face id.")]
Traces = Annotated[
    Path | None, typer.Option(help="Folder with the recorded traces [../shared/traces].")
]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.")]
Pages = Annotated[list[int], typer.Option("--page-size", help="Tokens a KV page; may be repeated.")]


class Dtypes(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    both = "both"


class Dtype(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


@app.callback(invoke_without_command=True)
def quick(ctx: typer.Context, as_json: Json = False) -> None:
    """Without a command: `bookkeeping` and `cpu`."""
    if ctx.invoked_subcommand is not None:
        return
    from agentkv.bench import bookkeeping, cpu

    _finish([bookkeeping.run(), *cpu.run(MODEL, ("float32", "bfloat16"), repeats=3)], as_json)


@app.command()
def bookkeeping(
    page_size: Pages = [1, 16],  # noqa: B006
    repeats: Annotated[int, typer.Option(min=1)] = 15,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Microseconds of the radix tree's match, insert and evict, beside numpy's own compare."""
    from agentkv.bench import bookkeeping as bench

    _finish([bench.run(page_size, repeats=repeats, seed=seed)], as_json)


@app.command()
def cpu(
    model: Model = MODEL,
    dtype: Annotated[Dtypes, typer.Option(help="Of weights, KV and the baseline.")] = Dtypes.both,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; medians are printed.")] = 5,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of both sides.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Prefill, decode and first token against transformers, on the same weights and dtype."""
    from agentkv.bench import cpu as bench

    dtypes = ("float32", "bfloat16") if dtype is Dtypes.both else (dtype.value,)
    _finish(bench.run(model, dtypes, repeats=repeats, threads=threads, seed=seed), as_json)


@app.command()
def oracle(
    model: Model = MODEL,
    traces: Traces = None,
    sessions: Annotated[int, typer.Option(min=1, help="Recorded agent sessions.")] = 20,
    requests: Annotated[int, typer.Option(min=1, help="Requests of the hash trace.")] = 2000,
    page_size: Pages = [1, 16],  # noqa: B006
    dtype: Dtype = Dtype.auto,
    engine: Annotated[
        bool, typer.Option("--engine/--no-engine", help="Also run the sessions on the model.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Cached tokens of real traces beside the exact longest-known-prefix oracle."""
    from agentkv.bench import oracle as bench

    with _traces():
        report = bench.run(
            model,
            traces=traces,
            sessions=sessions,
            requests=requests,
            page_sizes=page_size,
            dtype=dtype.value,
            engine_part=engine,
        )
    _finish([report], as_json)


@app.command()
def load(
    model: Model = MODEL,
    seconds: Annotated[float, typer.Option(min=1, help="How long the clients go on.")] = 180,
    clients: Annotated[int, typer.Option(min=1)] = 16,
    page_size: Annotated[int, typer.Option(help="Tokens a KV page: 1, 16, 32 or 64.")] = 1,
    dtype: Dtype = Dtype.auto,
    tiny: Annotated[bool, typer.Option("--tiny", help="A tiny random model, in float32.")] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Random load on a real server with a small pool: disconnects, aborts, and what is left."""
    import tempfile

    from agentkv.bench import load as bench

    with tempfile.TemporaryDirectory(prefix="agentkv-tiny-") as folder:
        if tiny:
            from agentkv.bench.tiny import build

            model = str(build(Path(folder)))
        report = bench.run(
            model,
            seconds=seconds,
            clients=clients,
            seed=seed,
            page_size=page_size,
            dtype="float32" if tiny else dtype.value,
            tiny=tiny,
        )
    _finish([report], as_json)


@app.command()
def parity(
    model: Model = MODEL,
    traces: Traces = None,
    prompts: Annotated[int, typer.Option(min=1)] = 24,
    new_tokens: Annotated[int, typer.Option(min=1)] = 48,
    page_size: Annotated[int, typer.Option(help="Tokens a KV page: 1, 16, 32 or 64.")] = 1,
    as_json: Json = False,
) -> None:
    """Greedy answers against transformers in float32: cold, cached, and in a batch of eight."""
    from agentkv.bench import parity as bench

    with _traces():
        report = bench.run(
            model, traces=traces, prompts=prompts, new_tokens=new_tokens, page_size=page_size
        )
    _finish([report], as_json)


@app.command()
def layer(
    tools: Annotated[int, typer.Option(min=1)] = 50,
    messages: Annotated[int, typer.Option(min=4)] = 100,
    calls: Annotated[int, typer.Option(min=2)] = 50,
    level: Annotated[str, typer.Option(help="canonical, static_first or learn.")] = "static_first",
    as_json: Json = False,
) -> None:
    """What the layout adds to a call: arrange, canonical JSON and span bookkeeping, in ms."""
    from agentkv.bench import layer as bench

    _finish([bench.run(tools=tools, messages=messages, calls=calls, level=level)], as_json)


@app.command()
def agents(
    model: Model = MODEL,
    case: Annotated[
        list[str] | None, typer.Option("--case", help="Part of a case's name; may be repeated.")
    ] = None,
    turns: Annotated[int, typer.Option(min=1, help="User turns.")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Tool calls a turn.")] = 5,
    max_tokens: Annotated[int, typer.Option(min=8, help="Of each answer.")] = 40,
    dtype: Dtype = Dtype.auto,
    as_json: Json = False,
) -> None:
    """What create_agent's middlewares do to prefix reuse, and what the layout saves of it."""
    from agentkv.cli.main import USAGE, fail

    try:
        from agentkv.bench import agents as bench
    except ImportError as error:
        from agentkv.cli.main import ENVIRONMENT

        fail(str(error), ENVIRONMENT)
    try:
        report = bench.run(
            model,
            only=case or (),
            turns=turns,
            steps=steps,
            max_tokens=max_tokens,
            dtype=dtype.value,
        )
    except ValueError as error:
        fail(str(error), USAGE)
    _finish([report], as_json)


class TierPart(StrEnum):
    workload = "workload"
    costs = "costs"


@app.command()
def tiers(
    model: Model = MODEL,
    clients: Annotated[int, typer.Option(min=2)] = 16,
    turns: Annotated[int, typer.Option(min=2)] = 5,
    new_tokens: Annotated[int, typer.Option(min=16, help="New prompt tokens a turn.")] = 512,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Generated tokens a turn.")] = 64,
    page_size: Annotated[int, typer.Option(help="Tokens a KV page: 1, 16, 32 or 64.")] = 16,
    parallel: Annotated[int, typer.Option(min=1, help="Calls at a time.")] = 4,
    part: Annotated[
        TierPart, typer.Option(help="The conversations, or expected against measured costs.")
    ] = TierPart.workload,
    dtype: Dtype = Dtype.auto,
    as_json: Json = False,
) -> None:
    """Long conversations on a pool a quarter their size: pool alone, with host, with disk."""
    from agentkv.bench import costs
    from agentkv.bench import tiers as bench

    if part is TierPart.costs:
        _finish(costs.run(model, page_size=page_size, dtype=dtype.value), as_json)
    report = bench.run(
        model,
        clients=clients,
        turns=turns,
        new_tokens=new_tokens,
        answer_tokens=answer_tokens,
        page_size=page_size,
        parallel=parallel,
        dtype=dtype.value,
    )
    _finish([report], as_json)


@app.command()
def restart(
    model: Model = MODEL,
    turns: Annotated[int, typer.Option(min=1)] = 30,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    page_size: Annotated[int, typer.Option(help="Tokens a KV page: 1, 16, 32 or 64.")] = 16,
    dtype: Dtype = Dtype.auto,
    index_gib: Annotated[
        float | None,
        typer.Option(min=0.1, help="Only start-up, on an index as of so many GiB, simulated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """First token after a restart with a disk cache, against a cold engine's."""
    from agentkv.bench import index
    from agentkv.bench import tiers as bench

    if index_gib is not None:
        _finish([index.run(index_gib, repeats=repeats)], as_json)
    report = bench.restart(
        model, turns=turns, repeats=repeats, page_size=page_size, dtype=dtype.value
    )
    _finish([report], as_json)


@app.command()
def kv_dtype(
    model: Model = MODEL,
    traces: Traces = None,
    prompts: Annotated[int, typer.Option(min=1)] = 50,
    new_tokens: Annotated[int, typer.Option(min=2, help="Greedy tokens a prompt.")] = 32,
    max_prompt: Annotated[int, typer.Option(min=1, help="Longest prompt in tokens.")] = 1024,
    dtype: Annotated[Dtypes, typer.Option(help="Of weights and arithmetic.")] = Dtypes.float32,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    as_json: Json = False,
) -> None:
    """FP8 KV against bfloat16 and float32: next-token KL, greedy answers, bytes, decode speed."""
    from agentkv.bench import kv_dtype as bench
    from agentkv.cli.main import USAGE, fail

    reports = []
    with _traces():
        for name in ("float32", "bfloat16") if dtype is Dtypes.both else (dtype.value,):
            try:
                reports += bench.run(
                    model,
                    traces=traces,
                    prompts=prompts,
                    new_tokens=new_tokens,
                    max_prompt=max_prompt,
                    dtype=name,
                    threads=threads,
                )
            except ValueError as error:
                fail(str(error), USAGE)
    _finish(reports, as_json)


@app.command()
def policies(
    traces: Traces = None,
    agents: Annotated[int, typer.Option(min=1, help="Recorded agents at a time.")] = 16,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What leaves the cache first: each policy on a burst, hash traces and interleaved agents."""
    from agentkv.bench import policies as bench
    from agentkv.bench.prompts import TracesMissing, find_traces

    with _traces():
        try:
            folder: Path | None = find_traces(traces)
        except TracesMissing:
            if traces is not None:
                raise
            folder = None  # the burst needs none
        _finish([bench.run(folder, agents=agents, seed=seed)], as_json)


class TracePart(StrEnum):
    hash = "hash"
    tau = "tau"
    speed = "speed"
    peers = "peers"


@app.command()
def trace(
    part: Annotated[
        list[TracePart] | None, typer.Option("--part", help="One part; may be repeated [all].")
    ] = None,
    traces: Traces = None,
    logs: Annotated[
        Path, typer.Option(help="The tests' module of planted logs, for `peers`.")
    ] = Path("tests/trace/causes/logs.py"),
    peers: Annotated[
        Path | None, typer.Option(help="Folder with the programs kvlint, promptcachelint.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with a tokenizer.json, which kvlint needs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay of recorded traffic: known rates, a naive model beside ours, speed, memory, peers."""
    from agentkv.bench import trace as bench
    from agentkv.bench import trace_peers
    from agentkv.bench.prompts import find_traces

    wanted = part or list(TracePart)
    if TracePart.peers in wanted and not logs.is_file():
        from agentkv.cli.main import USAGE, fail

        fail(f"there are no planted logs at {logs}: run it in a checkout, or give --logs.", USAGE)
    reports = []
    with _traces():
        for name in wanted:
            if name is TracePart.hash:
                reports.append(bench.hash_traces(find_traces(traces)))
            elif name is TracePart.tau:
                reports.append(bench.tau(find_traces(traces)))
            elif name is TracePart.speed:
                reports.append(bench.speed())
            else:
                reports.append(trace_peers.run(logs, peers, tokenizer))
    _finish(reports, as_json)


class LintPart(StrEnum):
    prompts = "prompts"
    samples = "samples"
    peers = "peers"
    quiet = "quiet"


@app.command()
def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Code without prompts, for `quiet` [installed packages]."),
    ] = None,
    part: Annotated[
        list[LintPart] | None, typer.Option("--part", help="One part; may be repeated [all].")
    ] = None,
    traces: Traces = None,
    samples: Annotated[
        Path | None, typer.Option(help="Folder with the samples [tests/lint/samples].")
    ] = None,
    peers: Annotated[
        Path | None, typer.Option(help="Folder with the programs pcdlint, cachedrift, kvlint.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with a tokenizer.json, which kvlint needs.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What `agentkv lint` finds in labelled prompts, samples and plain code, beside its peers."""
    from agentkv.bench import lint as bench

    for path in paths or ():
        if not path.exists():
            from agentkv.cli.main import USAGE, fail

            fail(f"there is no file or folder {str(path)!r}.", USAGE)
    reports = bench.run(
        part or bench.PARTS,
        traces=traces,
        folder=samples,
        paths=paths or (),
        peers=peers,
        tokenizer=tokenizer,
    )
    _finish(reports, as_json)


class DevicePart(StrEnum):
    roofs = "roofs"
    kernels = "kernels"
    engine = "engine"


@app.command()
def device(
    part: Annotated[
        list[DevicePart] | None, typer.Option("--part", help="One part; may be repeated [all].")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON, written after each section [agentkv-device.json].")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the file of a run that was cut short.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Begin nothing new after so many.")
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Also time SDPA and FlashInfer.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tiny sizes on the CPU: proves the script only.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """On a CUDA GPU: kernels against their roofs and peers, and an 8B-shaped engine end to end."""
    from agentkv.bench import device as bench
    from agentkv.cli.main import ENVIRONMENT, USAGE, fail

    try:
        reports = bench.run(
            parts=part or bench.PARTS,
            out=out,
            resume=resume,
            seconds=seconds,
            dry=dry_run,
            peers=peers,
            seed=seed,
        )
    except bench.NoDevice as error:
        fail(str(error), ENVIRONMENT)
    except bench.BadFile as error:
        fail(str(error), USAGE)
    _finish(reports, as_json)


@app.command()
def kernels(
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help="sm_80, sm_90, sm_100 or gfx942; may be repeated [all]."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Every row of the tuning table, in many forms.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What each kernel takes when compiled for GPUs that are not here; with a GPU, its speed too."""
    import importlib.util

    from agentkv.cli.main import ENVIRONMENT, USAGE, fail

    if importlib.util.find_spec("triton") is None:
        fail("compiling kernels needs Triton: pip install 'triton>=3.6,<3.10'", ENVIRONMENT)
    import torch

    from agentkv.bench import kernels as bench
    from agentkv.kernels.aot import TARGETS

    for name in target or ():
        if name not in TARGETS:
            fail(f"there is no target {name!r}; there are {', '.join(TARGETS)}.", USAGE)
    reports = [bench.aot(target or bench.TARGETS, every=every)]
    if torch.cuda.is_available():
        from agentkv.bench import device as on_device

        reports += on_device.run(parts=["kernels"], write=False)
    _finish(reports, as_json)


class _traces:
    """Turns missing traces into an exit status of their own."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from agentkv.bench.prompts import TracesMissing
        from agentkv.cli.main import ENVIRONMENT, fail

        if isinstance(error, TracesMissing):
            fail(str(error), ENVIRONMENT)


def _finish(reports: Sequence[Report], as_json: bool) -> None:
    from agentkv.bench.check import emit

    raise typer.Exit(emit(reports, as_json=as_json))
