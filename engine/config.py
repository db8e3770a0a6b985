"""What an engine is made with. Every field has a flag of the same name on `agentkv serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentkv.engine.errors import InvalidRequest

DEFAULT_MODEL = "smollm2-135m"
PAGE_SIZES = (1, 16, 32, 64)
POLICIES = ("lpm", "dfs-weight", "fcfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine.

    `model`: a known name (`agentkv models ls`), a directory, or a Hugging Face id.
    `dtype`: `float32` or `bfloat16`; `auto` is bfloat16 where the CPU has AMX, float32 elsewhere.
    `kv_dtype`: dtype of the KV pool; `auto` is `dtype`.
    `pool_tokens`: size of the KV pool in tokens; None sizes it from memory (a quarter of what is
    available, never more than 64 times the context window).
    `replay_entries`: how many of its own outputs the engine remembers as they were sampled, to feed
    them back as such; 0 encodes every text anew.
    `host_cache`: bytes of RAM for K/V that leaves the pool (`8GiB`; 0: none). `host_write`: when it is
    copied there: `back`, when it is evicted; `through`, in the background when it was used
    `host_write_hits` times; `off`.
    `disk_cache`: a directory for K/V that outlives the process; `disk_size` bytes of it at most, and
    `disk_max_age` seconds after its last use. What is on disk can be turned back into text: keep it
    as you would keep the prompts. `disk_store`: `all`, or `shared` (only calls without a salt).
    `load_policy`: bring K/V back when that is expected to be faster than computing it (`cost`), or
    whenever there is any (`always`).
    `max_batch_tokens`: token budget of one step; long prompts are prefilled in chunks of it.
    `check_invariants`: verify page conservation after every step (tests; costs a walk a step).
    """

    model: str = DEFAULT_MODEL
    served_name: str | None = None
    device: Literal["auto", "cpu"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    kv_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_model_len: int | None = None
    pool_tokens: int | None = None
    page_size: int = 1
    host_cache: int | str = 0
    host_write: Literal["back", "through", "off"] = "back"
    host_write_hits: int = 2
    disk_cache: str | None = None
    disk_size: int | str = "20GiB"
    disk_max_age: float | None = None
    disk_store: Literal["all", "shared"] = "all"
    load_policy: Literal["cost", "always"] = "cost"
    max_batch_tokens: int = 512
    max_running: int = 16
    max_queued: int = 1024
    policy: Literal["lpm", "dfs-weight", "fcfs"] = "lpm"
    prefix_cache: bool = True
    replay_entries: int = 512
    threads: int | None = None
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
        for name in ("max_batch_tokens", "max_running", "max_queued"):
            if getattr(self, name) < 1:
                raise InvalidRequest(
                    f"{name} must be at least 1, got {getattr(self, name)}.", param=name
                )
        for name in ("host_cache", "disk_size"):
            bytes_of(getattr(self, name), name)
        if self.disk_cache is not None and bytes_of(self.disk_size, "disk_size") <= 0:
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
        for name in ("max_model_len", "pool_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}.", param=name)


_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {f"{u}b": n for u, n in list(_UNITS.items()) if u not in ("", "b")}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_UNITS |= {f"{u}b": n for u, n in list(_UNITS.items()) if u.endswith("i")}


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
