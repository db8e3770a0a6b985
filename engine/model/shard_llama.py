"""A Llama of which this process has one part, and sums and gathers with the others."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.model.config import ModelConfig, not_own, read_json
from agentkv.engine.model.fingerprint import fingerprint
from agentkv.engine.model.linear import Linear
from agentkv.engine.model.llama import Llama
from agentkv.engine.model.shard import Collective, Shard, ShardWeights


class RowSum(Linear):
    """A product whose inputs are shared out: each rank has some columns, and the results are summed."""

    def __init__(self, part: Linear, ranks: Collective) -> None:
        vars(self).update(vars(part))
        self.part = part
        self._ranks = ranks

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._ranks.sum(self.part(x))

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        # `other` is the same everywhere, and may count once only.
        first = self._ranks.shard.rank == 0
        return self._ranks.sum(self.part.plus(x, other) if first else self.part(x))


class HeadParts(Linear):
    """The head, each rank with a part of the vocabulary. Rank 0 gets all logits, the others none."""

    def __init__(self, part: Linear, ranks: Collective, vocab_size: int) -> None:
        vars(self).update(vars(part))
        self.part = part
        self._ranks = ranks
        self._vocab = vocab_size

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        step = -(-self._vocab // self._ranks.shard.world)
        own = self.part(x)
        if own.shape[1] < step:
            own = functional.pad(own, (0, step - own.shape[1]))
        found = self._ranks.gather(own)
        if not found:
            return own[:, :0]
        return torch.cat(found, dim=-1)[:, : self._vocab].contiguous()


class ShardedLlama(Llama):
    """`LoadedModel` of one rank. `config` is the shape of its part; `forward` gives logits on rank 0,
    and `[n, 0]` elsewhere."""

    ranks: Collective

    @classmethod
    def load_part(
        cls, model_dir: Path, ranks: Collective, *, dtype: torch.dtype, device: torch.device
    ) -> ShardedLlama:
        """Read this rank's part of the weights, and nothing else. No other rank is asked.

        Raises `InvalidRequest` when the model cannot be shared out, `UnsupportedModel` as `load`.
        """
        whole = shareable(model_dir, ranks.shard.world)
        shard = ranks.shard
        made = cls.load(
            model_dir,
            shard.local(whole),
            fingerprint(model_dir),
            dtype=dtype,
            device=device,
            weights=ShardWeights(model_dir, shard),
            head_rows=shard.part(whole.vocab_size),
        )
        assert isinstance(made, ShardedLlama)
        for layer in made.layers:
            layer.out = RowSum(layer.out, ranks)
            layer.down = RowSum(layer.down, ranks)
        made.head = HeadParts(made.head, ranks, whole.vocab_size)
        made.ranks = ranks
        return made

    def least_rows(self) -> int | None:
        # Each rank finds out about its own products; batches are padded alike on all.
        own = super().least_rows()
        most = self.ranks.most(_NONE if own is None else own)
        return None if most == _NONE else most

    def _products(self) -> list[Linear]:
        # Without the others: what ranks find is not the same, so they would not ask in step.
        every = super()._products()
        return [one.part if isinstance(one, RowSum | HeadParts) else one for one in every]


_NONE = 1 << 30


def shareable(model_dir: Path, world: int) -> ModelConfig:
    """The whole model's shape. Raises `InvalidRequest` when `world` ranks cannot share it out."""
    raw = read_json(model_dir / "config.json")
    if reason := not_own(raw):
        raise InvalidRequest(
            "tensor_parallel is for agentkv's own architectures, and this model runs by transformers' "
            f"code ({reason}). Leave it at 1.",
            param="tensor_parallel",
        )
    config = ModelConfig.load(model_dir)
    Shard(0, world).local(config)
    return config
