"""What an engine is made with. Every field has a flag of the same name on `agentkv serve`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from agentkv.engine.errors import InvalidRequest

DEFAULT_MODEL = "smollm2-135m"
PAGE_SIZES = (1, 16, 32, 64)
POLICIES = ("lpm", "dfs-weight", "fcfs")
EVICTIONS = ("lru", "hot", "role", "cost")
ATTENTIONS = ("auto", "cpu", "triton", "flashinfer")
DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
KV_DTYPES = ("auto", "float32", "bfloat16", "fp8", "fp8_e4m3")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine.

    `model`: a known name (`agentkv models ls`), a directory, or a Hugging Face id.
    `device`: `cpu`, `cuda`, `cuda:N`; `auto` is the first CUDA device, and the CPU where there is none.
    `dtype`: `float32` or `bfloat16`; `auto` is bfloat16 on CUDA and where the CPU has AMX, float32
    elsewhere.
    `attention`: `auto` is `cpu` on the CPU and `triton` on CUDA, where `flashinfer` may be had, too. On the
    CPU `triton` runs the kernels in Triton's interpreter (TRITON_INTERPRET=1) or by their references,
    for tests.
    `deterministic`: the same bits for the same prompt, cached or not, alone or in a batch. The CPU's own
    attention gives that in float32 at no price; on CUDA it takes fixed tiles and steps without graphs.
    Where it cannot be had, the engine does not start.
    `cascade`: read a prefix that a decoding batch shares once for all of it, where that pays (`triton`).
    `gpu_memory`: share of the device's memory that the engine may fill, weights included; what is left
    of it is the KV pool. With `pool_tokens`, not used.
    `overlap`: plan the next step while this one computes (CUDA with `triton`, one process). The CPU has
    nothing to overlap with.
    `cuda_graphs`: record decoding steps and replay them (CUDA, `triton`, own architectures).
    `kv_dtype`: dtype of the KV pool; `auto` is `dtype`. `fp8` (e4m3 with a scale for each layer and
    KV head, saturating) takes half the bytes of bfloat16, and changes answers a little; the same
    prompt still gets the same answer, cached or not.
    `pool_tokens`: size of the KV pool in tokens; None sizes it from memory (a quarter of what is
    available, never more than 64 times the context window; on CUDA see `gpu_memory`).
    `replay_entries`: how many of its own outputs the engine remembers as they were sampled, to feed
    them back as such; 0 encodes every text anew.
    `host_cache`: bytes of RAM for K/V that leaves the pool (`8GiB`; `2x`: twice the pool; 0: none). `host_write`: when it is
    copied there: `back`, when it is evicted; `through`, in the background when it was used
    `host_write_hits` times; `off`.
    `host_kv_dtype`: dtype of what is kept below the pool, on the host and on disk; `auto` is that of
    the pool. A smaller one than the pool's is lossy: a prefix that comes back is not, to the last
    bit, what was computed, and answers may differ from a cold call's.
    `disk_cache`: a directory for K/V that outlives the process; `disk_size` bytes of it at most, and
    `disk_max_age` seconds after its last use. What is on disk can be turned back into text: keep it
    as you would keep the prompts. `disk_store`: `all`, or `shared` (only calls without a salt).
    `remote_cache`: the URL of a Redis or Valkey server (`redis://[user:password@]host:port/db`) in the
    place of `disk_cache`, for engines that share prefixes; `disk_size`, `disk_max_age` and
    `disk_store` hold for it, too. It takes `agentkv[redis]`.
    `load_policy`: bring K/V back when that is expected to be faster than computing it (`cost`), or
    whenever there is any (`always`).
    `eviction`: which prefix leaves the pool first: `lru`, the least recently used; `hot`, that with a
    bonus for what many share; `role`, and one for tools and instructions; `cost`, and one for what is
    dear to compute again.
    `pin_share`, `pause_share`: shares of the pool that pins, and paused sessions, may keep.
    `namespace_floor`: share of the pool that each salt (each API key) keeps against the others;
    `namespace_quota`: share above which a salt's own prefixes leave first.
    `max_batch_tokens`: token budget of one step; long prompts are prefilled in chunks of it. None: 512
    on a CPU, where prompts take half of it at most while others decode; on a GPU 2048 to 8192, by its
    memory.
    `tensor_parallel`: processes (on CUDA: as many GPUs, from `device` on) that share out the model's
    heads and columns. `threads` is then that of each.
    `check_invariants`: verify page conservation after every step (tests; costs a walk a step).
    """

    model: str = DEFAULT_MODEL
    served_name: str | None = None
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    kv_dtype: Literal["auto", "float32", "bfloat16", "fp8", "fp8_e4m3"] = "auto"
    attention: Literal["auto", "cpu", "triton", "flashinfer"] = "auto"
    deterministic: bool = False
    cascade: bool = True
    gpu_memory: float = 0.9
    overlap: bool = True
    cuda_graphs: bool = True
    max_model_len: int | None = None
    pool_tokens: int | None = None
    page_size: int = 1
    host_cache: int | str = 0
    host_write: Literal["back", "through", "off"] = "back"
    host_write_hits: int = 2
    host_kv_dtype: Literal["auto", "float32", "bfloat16", "fp8", "fp8_e4m3"] = "auto"
    disk_cache: str | None = None
    remote_cache: str | None = field(default=None, repr=False)  # it may have a password
    disk_size: int | str = "20GiB"
    disk_max_age: float | None = None
    disk_store: Literal["all", "shared"] = "all"
    load_policy: Literal["cost", "always"] = "cost"
    max_batch_tokens: int | None = None
    max_running: int = 16
    max_queued: int = 1024
    policy: Literal["lpm", "dfs-weight", "fcfs"] = "lpm"
    eviction: Literal["lru", "hot", "role", "cost"] = "role"
    pin_share: float = 0.2
    pause_share: float = 0.5
    namespace_floor: float = 0.0
    namespace_quota: float = 1.0
    prefix_cache: bool = True
    replay_entries: int = 512
    threads: int | None = None
    tensor_parallel: int = 1
    check_invariants: bool = False

    def __post_init__(self) -> None:
        if self.page_size not in PAGE_SIZES:
            raise InvalidRequest(
                f"page_size must be one of {PAGE_SIZES}, got {self.page_size}.", param="page_size"
            )
        if self.policy not in POLICIES:
            raise InvalidRequest(
                f"policy must be one of {POLICIES}, got {self.policy!r}.", param="policy"
            )
        if not DEVICE.fullmatch(self.device):
            raise InvalidRequest(
                f"device must be auto, cpu, cuda or cuda:N, got {self.device!r}.", param="device"
            )
        if self.attention not in ATTENTIONS:
            raise InvalidRequest(
                f"attention must be one of {ATTENTIONS}, got {self.attention!r}.", param="attention"
            )
        if not 0 < self.gpu_memory <= 1:
            raise InvalidRequest(
                f"gpu_memory must be above 0 and at most 1, got {self.gpu_memory}.",
                param="gpu_memory",
            )
        for name in ("kv_dtype", "host_kv_dtype"):
            if getattr(self, name) not in KV_DTYPES:
                raise InvalidRequest(
                    f"{name} must be one of {KV_DTYPES}, got {getattr(self, name)!r}.", param=name
                )
        for name in ("max_batch_tokens", "max_running", "max_queued"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {count}.", param=name)
        if self.eviction not in EVICTIONS:
            raise InvalidRequest(
                f"eviction must be one of {EVICTIONS}, got {self.eviction!r}.", param="eviction"
            )
        for name in ("pin_share", "pause_share", "namespace_floor", "namespace_quota"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise InvalidRequest(f"{name} must be between 0 and 1, got {share}.", param=name)
        if self.namespace_floor > self.namespace_quota or self.namespace_quota == 0:
            raise InvalidRequest(
                "namespace_quota must be above 0, and at least namespace_floor.",
                param="namespace_quota",
            )
        host_bytes(self.host_cache, 0)
        bytes_of(self.disk_size, "disk_size")
        if self.disk_cache is not None and self.remote_cache is not None:
            raise InvalidRequest(
                "disk_cache and remote_cache are two places for the same thing; give one of them.",
                param="remote_cache",
            )
        if self.stored and bytes_of(self.disk_size, "disk_size") <= 0:
            raise InvalidRequest("disk_size must be more than 0.", param="disk_size")
        if self.host_write not in ("back", "through", "off"):
            raise InvalidRequest(
                f"host_write must be back, through or off, got {self.host_write!r}.",
                param="host_write",
            )
        if self.host_write_hits < 1:
            raise InvalidRequest(
                f"host_write_hits must be at least 1, got {self.host_write_hits}.",
                param="host_write_hits",
            )
        if self.disk_store not in ("all", "shared"):
            raise InvalidRequest(
                f"disk_store must be all or shared, got {self.disk_store!r}.", param="disk_store"
            )
        if self.load_policy not in ("cost", "always"):
            raise InvalidRequest(
                f"load_policy must be cost or always, got {self.load_policy!r}.",
                param="load_policy",
            )
        if self.disk_max_age is not None and self.disk_max_age <= 0:
            raise InvalidRequest(
                f"disk_max_age must be more than 0 seconds, got {self.disk_max_age}.",
                param="disk_max_age",
            )
        if self.replay_entries < 0:
            raise InvalidRequest(
                f"replay_entries must be at least 0, got {self.replay_entries}.",
                param="replay_entries",
            )
        if self.tensor_parallel < 1:
            raise InvalidRequest(
                f"tensor_parallel must be at least 1, got {self.tensor_parallel}.",
                param="tensor_parallel",
            )
        if self.tensor_parallel > 2 and self.deterministic:
            raise InvalidRequest(
                "deterministic=True takes tensor_parallel 1 or 2: in which order three or more ranks' "
                "numbers are added depends on the batch.",
                param="tensor_parallel",
            )
        for name in ("max_model_len", "pool_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}.", param=name)

    @property
    def stored(self) -> bool:
        """Whether there is a tier that outlives the process."""
        return self.disk_cache is not None or self.remote_cache is not None

    @property
    def lower(self) -> bool:
        """Whether there is any tier below the pool."""
        return self.prefix_cache and bool(host_bytes(self.host_cache, 1 << 30) or self.stored)


_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{u}b": n for u, n in list(_UNITS.items()) if u not in ("", "b")}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_UNITS |= {f"{u}b": n for u, n in list(_UNITS.items()) if u.endswith("i")}


def host_bytes(value: int | str, pool: int) -> int:
    """Bytes of the host tier: a size as in `bytes_of`, or a multiple of the pool's `pool` bytes, as
    `2x`. Raises `InvalidRequest`."""
    text = str(value).strip().lower()
    if not text.endswith("x"):
        return bytes_of(value, "host_cache")
    try:
        ratio = float(text[:-1])
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1000:
        raise InvalidRequest(
            f"host_cache must be a size such as 8GiB, or a multiple of the pool such as 2x, got "
            f"{value!r}.",
            param="host_cache",
        )
    return int(ratio * pool)


def bytes_of(value: int | str, param: str) -> int:
    """A size in bytes: a number, or a number with a unit (`512MiB`, `8GiB`, `1.5GB`).

    Raises `InvalidRequest` that names `param`.
    """
    number, unit = value, ""
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        digits = len(text) - len(text.lstrip("0123456789."))
        number, unit = text[:digits], text[digits:].strip().lower()
    try:
        size = int(float(number) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"{param} must be a size such as 512MiB or 8GiB, got {value!r}.", param=param
        ) from error
    if size < 0:
        raise InvalidRequest(f"{param} must not be negative, got {value!r}.", param=param)
    return size
