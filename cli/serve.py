"""`agentkv serve`: flags to a `ServeConfig`, and `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agentkv.cli.main import ENVIRONMENT, fail
from agentkv.engine.config import DEFAULT_MODEL


def serve(
    model: Annotated[
        str, typer.Argument(help="A known name, a directory, or a Hugging Face id.")
    ] = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one and prints it.")
    ] = 8080,
    device: Annotated[
        str, typer.Option(help="Where the model runs: auto, cpu, cuda or cuda:N.")
    ] = "auto",
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"], typer.Option(help="Number format of the weights.")
    ] = "auto",
    kv_dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "fp8", "fp8_e4m3"],
        typer.Option(help="Number format of the KV pool; fp8 is half the size of bfloat16."),
    ] = "auto",
    attention: Annotated[
        Literal["auto", "cpu", "triton", "flashinfer"],
        typer.Option(help="What computes attention; auto is cpu on the CPU and triton on CUDA."),
    ] = "auto",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Same bits, cached or not; slower on CUDA.")
    ] = False,
    cascade: Annotated[
        bool, typer.Option(help="Read a prefix that a batch shares once for all, where that pays.")
    ] = True,
    gpu_memory: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the GPU's memory that may be filled.")
    ] = 0.9,
    overlap: Annotated[
        bool, typer.Option(help="Plan the next step while this one computes (CUDA).")
    ] = True,
    cuda_graphs: Annotated[
        bool, typer.Option(help="Record decoding steps and replay them (CUDA).")
    ] = True,
    page_size: Annotated[
        int, typer.Option(help="Tokens in a KV page: 1, 16, 32 or 64. 1 reuses every token.")
    ] = 1,
    pool_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Size of the KV pool in tokens.", show_default="from free memory"),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(min=1, help="Context window in tokens.", show_default="the model's"),
    ] = None,
    host_cache: Annotated[
        str,
        typer.Option(help="RAM for K/V that leaves the pool: 8GiB, or 2x the pool; 0 for none."),
    ] = "0",
    host_write: Annotated[
        Literal["back", "through", "off"],
        typer.Option(help="Copy there on eviction, or in the background after repeated use."),
    ] = "back",
    host_write_hits: Annotated[
        int, typer.Option(min=1, help="Uses after which `through` copies a prefix.")
    ] = 2,
    host_kv_dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "fp8", "fp8_e4m3"],
        typer.Option(help="Number format below the pool, in RAM and on disk; smaller is lossy."),
    ] = "auto",
    disk_cache: Annotated[
        Path | None,
        typer.Option(help="Directory for K/V that outlives the server. As private as prompts."),
    ] = None,
    remote_cache: Annotated[
        str | None,
        typer.Option(
            envvar="AGENTKV_REMOTE_CACHE",
            help="URL of a Redis or Valkey server, redis://host:port/0, in place of that directory: "
            "servers that name the same one share prefixes.",
        ),
    ] = None,
    disk_size: Annotated[str, typer.Option(help="Most bytes in either.")] = "20GiB",
    disk_max_age: Annotated[
        float | None, typer.Option(min=1, help="Seconds after its last use that K/V stays there.")
    ] = None,
    disk_store: Annotated[
        Literal["all", "shared"],
        typer.Option(help="What goes to disk: everything, or only calls without key or salt."),
    ] = "all",
    load_policy: Annotated[
        Literal["cost", "always"],
        typer.Option(help="Bring K/V back when it is expected to be faster, or always."),
    ] = "cost",
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Token budget of one step; long prompts run in pieces of it. "
            "Default: 512 on a CPU, 2048 to 8192 on a GPU.",
            show_default=False,
        ),
    ] = None,
    max_running: Annotated[int, typer.Option(min=1, help="Most requests in the batch.")] = 16,
    max_queued: Annotated[
        int, typer.Option(min=1, help="Most requests that may wait; others get a 503.")
    ] = 1024,
    policy: Annotated[
        Literal["lpm", "dfs-weight", "fcfs"],
        typer.Option(help="Order of the queue; lpm takes the longest cached prefix first."),
    ] = "lpm",
    eviction: Annotated[
        Literal["lru", "hot", "role", "cost"],
        typer.Option(help="What leaves the cache first; each adds a bonus to the one before."),
    ] = "role",
    pin_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the pool that pins may keep.")
    ] = 0.2,
    pause_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the pool that paused sessions may keep.")
    ] = 0.5,
    namespace_floor: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the pool that each key or salt is left.")
    ] = 0.0,
    namespace_quota: Annotated[
        float, typer.Option(min=0, max=1, help="Share above which a key's prefixes leave first.")
    ] = 1.0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads.", show_default="all cores")
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="Processes, or GPUs, that share out the model's heads.")
    ] = 1,
    served_name: Annotated[
        str | None,
        typer.Option(help="Name of the model in replies.", show_default="the model's name"),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with API keys, one a line. AGENTKV_API_KEY adds one."),
    ] = None,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="Listen beyond loopback without a key.")
    ] = False,
    drain_timeout: Annotated[
        float, typer.Option(min=0.0, help="Seconds that running requests get after SIGTERM.")
    ] = 20.0,
    record: Annotated[
        Path | None,
        typer.Option(help="Add a line for each call to a file, for `agentkv trace`: digests only."),
    ] = None,
    record_text: Annotated[
        bool, typer.Option("--record-text", help="Record prompts and answers as well.")
    ] = False,
    allowed_hosts: Annotated[
        str, typer.Option(help="Further names for the Host header, separated by commas.")
    ] = "",
) -> None:
    """Serve a model over HTTP, OpenAI-compatible."""
    from agentkv.engine.config import EngineConfig
    from agentkv.engine.serve.config import ServeConfig, read_api_keys
    from agentkv.engine.serve.run import Unavailable, run

    config = ServeConfig(
        engine=EngineConfig(
            model=model,
            served_name=served_name,
            device=device,
            attention=attention,
            deterministic=deterministic,
            cascade=cascade,
            gpu_memory=gpu_memory,
            overlap=overlap,
            cuda_graphs=cuda_graphs,
            dtype=dtype,
            max_model_len=max_model_len,
            pool_tokens=pool_tokens,
            kv_dtype=kv_dtype,
            page_size=page_size,
            host_cache=host_cache,
            host_write=host_write,
            host_write_hits=host_write_hits,
            host_kv_dtype=host_kv_dtype,
            disk_cache=None if disk_cache is None else str(disk_cache),
            remote_cache=remote_cache,
            disk_size=disk_size,
            disk_max_age=disk_max_age,
            disk_store=disk_store,
            load_policy=load_policy,
            max_batch_tokens=max_batch_tokens,
            max_running=max_running,
            max_queued=max_queued,
            policy=policy,
            eviction=eviction,
            pin_share=pin_share,
            pause_share=pause_share,
            namespace_floor=namespace_floor,
            namespace_quota=namespace_quota,
            threads=threads,
            tensor_parallel=tensor_parallel,
        ),
        host=host,
        port=port,
        api_keys=read_api_keys(api_key_file),
        insecure_no_auth=insecure_no_auth,
        allowed_hosts=tuple(name.strip() for name in allowed_hosts.split(",") if name.strip()),
        drain_timeout=drain_timeout,
        record=None if record is None else str(record),
        record_text=record_text,
    )
    try:
        run(config)
    except Unavailable as error:
        fail(str(error), ENVIRONMENT)
