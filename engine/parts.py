"""Parts: what an engine is made of, from its settings.

    config -> device -> model -> tokenizer, renderer -> pool (sized by what is free) -> runner, sampler

Made on the thread that will compute with them, since torch's number of threads belongs to a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch

from agentkv.engine import threads
from agentkv.engine.config import EngineConfig
from agentkv.engine.device import Device, find_device
from agentkv.engine.errors import RankFailed
from agentkv.engine.kv.pool import KV_DTYPES, KVPool, dtype_name
from agentkv.engine.memory import pool_tokens_for
from agentkv.engine.model.load import LoadedModel, load_model
from agentkv.engine.model.shard import Shard
from agentkv.engine.model.store import resolve
from agentkv.engine.run.backends import attention_name, batch_tokens, device_tokens, make_runner
from agentkv.engine.run.calibrate import fp8_scales
from agentkv.engine.run.parallel_runner import Parallel, Runner
from agentkv.engine.run.sampler import Sampler
from agentkv.engine.text.render import Renderer
from agentkv.engine.text.tokenizer import Tokenizer
from agentkv.kernels.fp8 import FP8

if TYPE_CHECKING:
    from agentkv.engine.run.device_runner import DeviceRunner

threads.loaded()


@dataclass(kw_only=True)
class Parts:
    """`config`: as it is carried out. `device`: None on the CPU. `ahead`: the runner, where a step can be
    queued before the one before it has ended; else None. `pool_tokens`: whole pages. `kv_bytes`: of all
    ranks. `batch_tokens`: the token budget of a step."""

    config: EngineConfig
    device: Device | None
    attention: str
    parallel: Parallel | None
    model: LoadedModel
    dtype: torch.dtype
    tokenizer: Tokenizer
    renderer: Renderer
    max_model_len: int
    pool: KVPool
    pool_tokens: int
    batch_tokens: int
    kv_bytes: int
    host_dtype: torch.dtype
    runner: Runner
    ahead: DeviceRunner | None
    sampler: Sampler

    @classmethod
    def load(cls, config: EngineConfig, failed: Callable[[RankFailed], None]) -> Self:
        """`failed`: called from another thread when a rank of a tensor-parallel engine is lost.

        Raises `ModelNotFound`, `UnsupportedModel`, `PullFailed`, `InvalidRequest`.
        """
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        device = find_device(config.device)
        attention = attention_name(config, device)
        if device is not None:
            device.adopt()
        if config.tensor_parallel == 1:
            return cls._load(config, device, attention, None)
        # Exchanges between GPUs inside of recorded steps have not been tried.
        config = replace(config, cuda_graphs=False)
        where = torch.device("cpu") if device is None else device.where
        directory = resolve(config.model)
        dtype = _dtype(config.dtype, on_cpu=device is None)
        parallel = Parallel(config, directory, dtype=dtype, where=where, failed=failed)
        try:
            return cls._load(config, device, attention, parallel)
        except BaseException as error:
            told = parallel.explain(error)
            parallel.close()
            raise told from error

    @classmethod
    def _load(
        cls, config: EngineConfig, device: Device | None, attention: str, parallel: Parallel | None
    ) -> Self:
        directory = resolve(config.model)
        dtype = _dtype(config.dtype, on_cpu=device is None)
        where = torch.device("cpu") if device is None else device.where
        model: LoadedModel = (
            load_model(directory, dtype=dtype, device=str(where))
            if parallel is None
            else parallel.load()
        )
        shape = model.config
        kv_dtype = dtype if config.kv_dtype == "auto" else KV_DTYPES[config.kv_dtype]
        host_dtype = KV_DTYPES.get(config.host_kv_dtype, kv_dtype) if config.lower else kv_dtype
        window = min(config.max_model_len or shape.max_position, shape.max_position)
        tokenizer = Tokenizer.load(directory)
        renderer = Renderer.load(directory, tokenizer, replay_entries=config.replay_entries)
        per_token = KVPool.bytes_per_token(
            shape.num_layers, shape.num_kv_heads, shape.head_dim, kv_dtype
        )
        scales = None
        if FP8 in (kv_dtype, host_dtype):
            shard = Shard(0, config.tensor_parallel)
            scales = fp8_scales(model, tokenizer, directory, shard)
        rows = batch_tokens(config, device)
        tokens = config.pool_tokens
        if tokens is None and device is None:
            # Ranks on a CPU share its memory.
            tokens = pool_tokens_for(per_token * config.tensor_parallel, window)
        elif tokens is None:
            assert device is not None
            tokens = device_tokens(config, model, device, per_token, window, rows)
            tokens = tokens if parallel is None else parallel.fewest(tokens)
        slots = max(1, tokens // config.page_size) * config.page_size
        pool = KVPool(
            layers=shape.num_layers,
            slots=slots,
            kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=kv_dtype,
            device=model.device,
            scales=scales,
        )

        def make() -> tuple[Runner, Sampler]:
            return make_runner(config, model, pool, device, attention, window)

        runner, sampler = make() if parallel is None else parallel.runner(slots, make)
        return cls(
            config=config,
            device=device,
            attention=attention,
            parallel=parallel,
            model=model,
            dtype=dtype,
            tokenizer=tokenizer,
            renderer=renderer,
            max_model_len=window,
            pool=pool,
            pool_tokens=slots,
            batch_tokens=rows,
            kv_bytes=pool.nbytes * config.tensor_parallel,
            host_dtype=host_dtype,
            runner=runner,
            ahead=None if device is None else _ahead(config, runner),
            sampler=sampler,
        )

    @property
    def eos(self) -> frozenset[int]:
        """Token ids that end an answer."""
        return frozenset(self.tokenizer.eos_ids) | frozenset(self.model.config.eos_token_ids)

    @property
    def name(self) -> str:
        """What the model is called in answers."""
        config = self.config
        return config.served_name or config.model.rstrip("/").rsplit("/", 1)[-1]

    @property
    def device_name(self) -> str:
        return "cpu" if self.device is None else str(self.device.where)

    @property
    def kv_dtype_name(self) -> str:
        return dtype_name(self.pool.dtype)


def _ahead(config: EngineConfig, runner: Runner) -> DeviceRunner | None:
    """Not with tensor parallel, whose ranks are told each step's tables when it is its turn, and not with
    FlashInfer, which plans every step in the same host memory."""
    from agentkv.engine.attention.triton import TritonAttention
    from agentkv.engine.run.device_runner import DeviceRunner

    if not config.overlap or not isinstance(runner, DeviceRunner):
        return None
    return runner if isinstance(runner.attention, TritonAttention) else None


def _dtype(name: str, *, on_cpu: bool) -> torch.dtype:
    if name == "auto":
        amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
        return torch.bfloat16 if amx or not on_cpu else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32
