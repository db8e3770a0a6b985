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
        if self.replay_entries < 0:
            raise InvalidRequest(
                f"replay_entries must be at least 0, got {self.replay_entries}.",
                param="replay_entries",
            )
        for name in ("max_model_len", "pool_tokens", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}.", param=name)
