"""DeviceSampler: tokens are chosen where the logits are, and only tokens come back.

    greedy, nothing that changes the logits    argmax, all rows at once
    temperature, top-k, top-p, min-p           the sampling kernel, all rows at once
    all else (grammars, penalties, biases)     these rows go to the host, to `Sampler`

The first two can be drafted: the choice is queued behind the logits, the next step can start from it, and
the host reads it later.

A seed draws the same numbers either way. With top-k or top-p they do not pick the same tokens: the kernel
lays shares out by token, `Sampler` by falling share. The shares are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentkv.engine.device import Device, Event
from agentkv.engine.run.sampler import (
    Draft,
    Sampled,
    Sampler,
    SampleState,
    is_greedy,
    is_plain,
    logprob,
)
from agentkv.engine.run.staging import BUFFERS, LEAST, Staging
from agentkv.engine.types import IntArray
from agentkv.kernels.sampling import sample

_BELOW_ONE = 1.0 - 2.0**-24


@dataclass(frozen=True, slots=True)
class DeviceDraft:
    """`host`: pinned, int32 `[n]`; nobody else's until `read`."""

    tokens: torch.Tensor
    host: torch.Tensor
    sent: Event

    def read(self) -> list[int]:
        self.sent.synchronize()
        found: list[int] = self.host.tolist()
        return found


class DeviceSampler(Sampler):
    """`Sampler` for logits on `device`. On the thread that computes."""

    def __init__(self, vocab_size: int, device: Device) -> None:
        super().__init__(vocab_size)
        self._device = device
        self._staging = Staging(device)
        self._buffers: list[torch.Tensor] = []
        self._drafts = 0

    @torch.inference_mode()
    def draft(self, logits: torch.Tensor, states: Sequence[SampleState]) -> Draft | None:
        """None unless all rows can be chosen on the device and no log-probabilities are wanted. At most
        one draft may be unread when the next one is made."""
        if any(not is_plain(s) or s.params.logprobs is not None for s in states):
            return None
        count = len(states)
        if not self._buffers or len(self._buffers[0]) < count:
            size = max(LEAST, 1 << max(0, count - 1).bit_length())
            self._buffers = [self._device.pinned((size,), torch.int32) for _ in range(BUFFERS)]
        host = self._buffers[self._drafts % BUFFERS][:count]
        self._drafts += 1
        if count:
            tokens = self._choose(logits, states)
            self._device.copy(tokens, host)
        else:
            tokens = torch.empty(0, dtype=torch.int32, device=self._device.where)
        return DeviceDraft(tokens, host, self._device.record())

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, states: Sequence[SampleState]) -> list[Sampled]:
        if logits.shape[0] != len(states):
            raise ValueError(f"{logits.shape[0]} rows of logits for {len(states)} states")
        plain = [i for i, s in enumerate(states) if is_plain(s)]
        rest = [i for i, s in enumerate(states) if not is_plain(s)]
        read = [i for i in plain if states[i].params.logprobs is not None]
        # All is queued before the first result is waited for.
        if plain:
            chosen = self._choose(self._rows(logits, plain), [states[i] for i in plain])
        host = dict(zip(read, self._rows(logits, read).cpu(), strict=True)) if read else {}
        out: dict[int, Sampled] = {}
        if rest:
            some = super().sample(self._rows(logits, rest).cpu(), [states[i] for i in rest])
            out |= dict(zip(rest, some, strict=True))
        if plain:
            for i, token in zip(plain, chosen.tolist(), strict=True):
                wanted = states[i].params.logprobs
                out[i] = Sampled(token, logprob(host[i], token, wanted) if i in host else None)
        return [out[i] for i in range(len(states))]

    def _rows(self, logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
        if len(rows) == logits.shape[0]:
            return logits
        return logits.index_select(0, self._staging.send([np.array(rows, dtype=np.int32)])[0])

    def _choose(self, logits: torch.Tensor, states: Sequence[SampleState]) -> torch.Tensor:
        """int32 `[n]` on the device: one token a row, all of them plain. Queued, not waited for."""
        greedy = np.array([is_greedy(s) for s in states], dtype=np.int32)
        best = None
        if greedy.any():
            best = logits.argmax(dim=-1).to(torch.int32)
            if greedy.all():
                return best
        chosen, settled = self._draw(logits, states, greedy)
        return chosen if best is None else torch.where(settled != 0, best, chosen)

    def _draw(
        self, logits: torch.Tensor, states: Sequence[SampleState], greedy: IntArray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the kernel draws in all rows, and `greedy` on the device. Only rows that are not greedy
        use up a number of theirs."""
        numbers = np.empty((4, len(states)), dtype=np.float32)
        top_k = np.empty(len(states), dtype=np.int32)
        for i, state in enumerate(states):
            p = state.params
            numbers[:, i] = (
                (1.0, 1.0, 0.0, 0.0)
                if greedy[i]
                else (p.temperature, p.top_p, p.min_p, min(state.draw(), _BELOW_ONE))
            )
            top_k[i] = 1 if greedy[i] else p.top_k
        k, settled, *rows = self._staging.send([top_k, greedy, *numbers.view(np.int32)])
        temperature, top_p, min_p, draws = (row.view(torch.float32) for row in rows)
        return sample(logits, temperature, k, top_p, min_p, draws).to(torch.int32), settled
