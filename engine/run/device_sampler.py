"""DeviceSampler: tokens are chosen where the logits are, and only tokens come back.

    greedy, nothing that changes the logits    argmax, all rows at once
    temperature, top-k, top-p, min-p           the sampling kernel, all rows at once
    all else (grammars, penalties, biases)     these rows go to the host, to `Sampler`

A seed draws the same numbers either way. With top-k or top-p they do not pick the same tokens: the kernel
lays shares out by token, `Sampler` by falling share. The shares are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agentkv.engine.run.sampler import Sampled, Sampler, SampleState, is_greedy, is_plain, logprob
from agentkv.kernels.sampling import sample

_BELOW_ONE = 1.0 - 2.0**-24


class DeviceSampler(Sampler):
    """`Sampler` for logits on a device."""

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, states: Sequence[SampleState]) -> list[Sampled]:
        if logits.shape[0] != len(states):
            raise ValueError(f"{logits.shape[0]} rows of logits for {len(states)} states")
        greedy = [i for i, s in enumerate(states) if is_plain(s) and is_greedy(s)]
        drawn = [i for i, s in enumerate(states) if is_plain(s) and not is_greedy(s)]
        alone = set(greedy) | set(drawn)
        rest = [i for i in range(len(states)) if i not in alone]
        read = [i for i in sorted(alone) if states[i].params.logprobs is not None]
        found: dict[int, int] = {}
        if greedy:
            best = self._rows(logits, greedy).argmax(dim=-1)
        if drawn:
            chosen = self._draw(self._rows(logits, drawn), [states[i] for i in drawn])
        # All is queued before the first result is waited for.
        host = dict(zip(read, self._rows(logits, read).cpu(), strict=True)) if read else {}
        if greedy:
            found |= dict(zip(greedy, best.tolist(), strict=True))
        if drawn:
            found |= dict(zip(drawn, chosen.tolist(), strict=True))
        out: dict[int, Sampled] = {}
        if rest:
            some = super().sample(self._rows(logits, rest).cpu(), [states[i] for i in rest])
            out |= dict(zip(rest, some, strict=True))
        for i, token in found.items():
            wanted = states[i].params.logprobs
            out[i] = Sampled(token, logprob(host[i], token, wanted) if i in host else None)
        return [out[i] for i in range(len(states))]

    def _rows(self, logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
        if len(rows) == logits.shape[0]:
            return logits
        return logits.index_select(0, torch.tensor(rows).to(logits.device))

    def _draw(self, logits: torch.Tensor, states: Sequence[SampleState]) -> torch.Tensor:
        params = [s.params for s in states]
        numbers = np.array(
            [
                (p.temperature, p.top_p, p.min_p, min(s.draw(), _BELOW_ONE))
                for p, s in zip(params, states, strict=True)
            ],
            dtype=np.float32,
        )
        top_k = torch.tensor([p.top_k for p in params], dtype=torch.int32)
        temperature, top_p, min_p, draws = torch.from_numpy(numbers.T.copy()).to(logits.device)
        return sample(logits, temperature, top_k.to(logits.device), top_p, min_p, draws)
