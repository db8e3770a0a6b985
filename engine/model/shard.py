"""One rank's part of a model: which heads, rows and columns are its own, read without the rest.

q, k, v      rows, by KV heads and the query heads that read them
o            columns, by the same heads; the ranks' results are summed
gate, up     rows
down         columns; summed
embedding    whole on every rank: a look-up, which costs memory and no exchange
head         rows, that is, parts of the vocabulary; rank 0 gathers the logits and samples
norms        whole
biases       as the rows they belong to; that of a sum on rank 0 alone, or it would be added N times
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from agentkv.engine.errors import InvalidRequest, UnsupportedModel
from agentkv.engine.model.config import ModelConfig
from agentkv.engine.model.weights import Weights

_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_COLUMNS = ("o_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `rank` of `world` equal ones."""

    rank: int = 0
    world: int = 1

    def part(self, size: int) -> slice:
        """This rank's share of an axis; the last ranks' is shorter where it does not come out even."""
        step = -(-size // self.world)
        return slice(min(size, self.rank * step), min(size, (self.rank + 1) * step))

    def local(self, config: ModelConfig) -> ModelConfig:
        """The shape of this rank's part. Raises `InvalidRequest` when there is no even one."""
        heads, inner = config.num_kv_heads, config.intermediate_size
        for size, what in ((heads, "KV heads"), (inner, "columns in its MLP")):
            if size % self.world:
                most = math.gcd(heads, inner)
                fit = ", ".join(str(n) for n in range(1, most + 1) if most % n == 0)
                raise InvalidRequest(
                    f"tensor_parallel is {self.world}, and the model has {size} {what}, which cannot "
                    f"be shared out evenly. For this model it may be {fit}.",
                    param="tensor_parallel",
                )
        return replace(
            config,
            num_heads=config.num_heads // self.world,
            num_kv_heads=heads // self.world,
            intermediate_size=inner // self.world,
        )


WHOLE = Shard()


class Collective(Protocol):
    """What ranks do together. Every rank calls the same methods in the same order."""

    shard: Shard

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in place of x and returned."""
        ...

    def gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's x, of one shape, by rank; empty but on rank 0."""
        ...

    def most(self, value: int) -> int:
        """The largest of all ranks' values."""
        ...


class ShardWeights(Weights):
    """`Weights` of which only this rank's part is read."""

    def __init__(self, model_dir: Path, shard: Shard) -> None:
        super().__init__(model_dir)
        self._shard = shard

    def __contains__(self, name: str) -> bool:
        if self._shard.rank and name.endswith(tuple(f".{p}.bias" for p in _COLUMNS)):
            return False
        return super().__contains__(name)

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """This rank's part of the tensor; `shape` is that of the part."""
        axis = _axis(name)
        if axis is None or name not in self:
            return super().take(name, shape)
        found = self._where[name].get_slice(name)
        whole = tuple(found.get_shape())
        if axis >= len(whole):
            raise UnsupportedModel(f"{name} has shape {whole}, and must have two axes.")
        own = self._shard.part(whole[axis])
        value: torch.Tensor = found[own] if axis == 0 else found[:, own]
        if shape is not None and tuple(value.shape) != shape:
            raise UnsupportedModel(
                f"{name} has shape {whole}, of which rank {self._shard.rank} of {self._shard.world} "
                f"takes {tuple(value.shape)}; config.json says {shape}."
            )
        return value


def _axis(name: str) -> int | None:
    """Along which axis a tensor is shared out; None: not at all."""
    if name == "lm_head.weight":
        return 0
    parts = name.split(".")
    if len(parts) < 2 or parts[-1] not in ("weight", "bias"):
        return None
    if parts[-2] in _ROWS:
        return 0
    return 1 if parts[-2] in _COLUMNS and parts[-1] == "weight" else None
