"""Draw one token a row: temperature, then top-k, then top-p, then min-p, without sorting.

Signature: `logits [rows, vocab]` (float32, float16, bfloat16; rows strided); `temperature`, `top_p`,
`min_p` float32 `[rows]`, `top_k` int32 `[rows]`; `draws` float32 `[rows]` in [0, 1). Result: int64
`[rows]`. `top_k` 0 or below, `top_p` 1 or above and `min_p` 0 switch their rule off; a temperature
below 1e-5 takes the largest logit. Of equal logits those with the lower ids come first.

A rule keeps the first tokens in falling order of their logits; which these are is found by bisecting
the order of floats for the last logit that stays, counting tokens or adding their weights in each
step. The token is then the one at which the sum of the weights kept, in order of ids, passes
`draws * sum of all kept`: the same draw gives the same token, whatever the batch.
"""

from __future__ import annotations

import torch

from agentkv.kernels.device import runs_triton
from agentkv.kernels.jit import jit, power_of_two, tl

COLD = 1e-5


def sample(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    draws: torch.Tensor,
) -> torch.Tensor:
    """Tokens of all rows. At least one logit of a row must be finite, and none NaN or +inf."""
    if not runs_triton(logits):
        return sample_reference(logits, temperature, top_k, top_p, min_p, draws)
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        _sample[(rows,)](
            logits, temperature, top_k, top_p, min_p, draws, out, vocab, logits.stride(0),
            BLOCK=min(4096, power_of_two(vocab)), num_warps=8,
        )  # fmt: skip
    return out


def sample_reference(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    draws: torch.Tensor,
) -> torch.Tensor:
    """The reference: sorts, in float64."""
    x = logits.double()
    values, ids = x.sort(dim=-1, descending=True, stable=True)
    warm = temperature.clamp_min(COLD).double()[:, None]
    place = torch.arange(x.shape[1], device=x.device)
    inside = (top_k[:, None] <= 0) | (place < top_k[:, None])
    share = torch.softmax((values / warm).masked_fill(~inside, float("-inf")), dim=-1)
    before = share.cumsum(-1) - share
    inside &= (top_p[:, None] >= 1) | (before < top_p[:, None]) | (place == 0)
    inside &= share >= min_p[:, None].double() * share[:, :1]
    kept = torch.zeros_like(x).scatter_(1, ids, torch.where(inside, share, 0.0))
    total = kept.cumsum(-1)
    mark = draws.double() * total[:, -1]
    at = torch.searchsorted(total, mark[:, None], right=True)[:, 0]
    # A draw that is rounded onto the upper end takes the last token kept.
    last = torch.where(kept > 0, place, 0).amax(-1)
    return torch.where(temperature < COLD, ids[:, 0], torch.minimum(at, last))


@jit
def _block(Logits, start, vocab, BLOCK: tl.constexpr):
    """Logits from `start` on as float32 and as integers of the same order, and their ids."""
    ids = start + tl.arange(0, BLOCK)
    x = tl.load(Logits + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)
    x += 0.0  # there is one zero
    bits = x.to(tl.int32, bitcast=True)
    return x, tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF), ids


@jit
def _weight(key, peak, factor):
    """The weight of a logit with this key."""
    x = tl.where(key >= 0, key, key ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)
    return tl.exp2((x - peak) * factor)


@jit
def _from(Logits, bound, peak, factor, vocab, BLOCK: tl.constexpr):
    """How many logits have keys of at least `bound`, and their weights."""
    count = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab, BLOCK):
        x, key, ids = _block(Logits, start, vocab, BLOCK)
        inside = (key >= bound) & (ids < vocab)
        count += inside.to(tl.int32)
        mass += tl.where(inside, tl.exp2((x - peak) * factor), 0.0)
    return tl.sum(count, 0), tl.sum(mass, 0)


@jit(unaligned="Temperature TopK TopP MinP Draws Out")
def _sample(Logits, Temperature, TopK, TopP, MinP, Draws, Out, vocab, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    Logits += row * stride
    temperature = tl.load(Temperature + row)
    top_k = tl.load(TopK + row)
    top_p = tl.load(TopP + row)

    best = tl.full([BLOCK], float("-inf"), tl.float32)
    where = tl.zeros([BLOCK], tl.int32)
    least = tl.full([BLOCK], 0x7FFFFFFF, tl.int32)
    for start in range(0, vocab, BLOCK):
        x, key, ids = _block(Logits, start, vocab, BLOCK)
        where = tl.where(x > best, ids, where)
        best = tl.maximum(best, x)
        least = tl.minimum(least, tl.where(ids < vocab, key, 0x7FFFFFFF))
    peak = tl.max(best, 0)
    token = tl.min(tl.where(best == peak, where, 0x7FFFFFFF), 0)

    if temperature >= 1e-5:
        factor = 1.4426950408889634 / temperature  # to base 2
        bits = peak.to(tl.int32, bitcast=True)
        above = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF) + 1  # no key is this large
        bound = tl.min(least, 0)
        ties = vocab  # of the logits equal to the bound, how many stay
        if (top_k > 0) & (top_k < vocab):
            low, high = bound, above
            beyond = 0
            exact = 0
            while (high > low + 1) & (exact == 0):
                middle = (low & high) + ((low ^ high) >> 1)
                count, mass = _from(Logits, middle, peak, factor, vocab, BLOCK)
                if count >= top_k:
                    low = middle
                    exact = (count == top_k).to(tl.int32)
                else:
                    high = middle
                    beyond = count
            bound = low
            ties = tl.where(exact == 1, vocab, top_k - beyond)
        if top_p < 1.0:
            # Shares are of what top-k left: all beyond the bound, and `ties` of those equal to it.
            equal, mass = _from(Logits, bound, peak, factor, vocab, BLOCK)
            beyond, mass = _from(Logits, bound + 1, peak, factor, vocab, BLOCK)
            stay = tl.minimum(equal - beyond, ties).to(tl.float32)
            goal = top_p * (mass + stay * _weight(bound, peak, factor))
            low, high = bound, above
            beyond_mass = 0.0
            while high > low + 1:
                middle = (low & high) + ((low ^ high) >> 1)
                count, mass = _from(Logits, middle, peak, factor, vocab, BLOCK)
                if mass >= goal:
                    low = middle
                else:
                    high = middle
                    beyond_mass = mass
            need = tl.ceil((goal - beyond_mass) / _weight(low, peak, factor))
            need = tl.minimum(tl.maximum(need, 1.0), 1.0e9).to(tl.int32)
            ties = tl.where(low == bound, tl.minimum(ties, need), need)
            bound = low

        floor = tl.load(MinP + row)
        mass = 0.0
        seen = 0
        for start in range(0, vocab, BLOCK):
            w, seen = _kept(Logits, start, bound, ties, seen, floor, peak, factor, vocab, BLOCK)
            mass += tl.sum(w, 0)
        mark = tl.load(Draws + row) * mass
        token = -1
        last = 0
        mass = 0.0
        seen = 0
        for start in range(0, vocab, BLOCK):
            w, seen = _kept(Logits, start, bound, ties, seen, floor, peak, factor, vocab, BLOCK)
            ids = start + tl.arange(0, BLOCK)
            upto = mass + tl.cumsum(w, 0)
            hit = tl.min(tl.where((upto > mark) & (w > 0), ids, 0x7FFFFFFF), 0)
            token = tl.where((token < 0) & (hit < 0x7FFFFFFF), hit, token)
            last = tl.maximum(last, tl.max(tl.where(w > 0, ids, 0), 0))
            mass += tl.sum(w, 0)
        token = tl.where(token < 0, last, token)
    tl.store(Out + row, token.to(tl.int64))


@jit
def _kept(Logits, start, bound, ties, seen, floor, peak, factor, vocab, BLOCK: tl.constexpr):
    """Weights of a block's tokens, 0 for those that the rules drop, and the ties seen so far."""
    x, key, ids = _block(Logits, start, vocab, BLOCK)
    tie = ((key == bound) & (ids < vocab)).to(tl.int32)
    rank = seen + tl.cumsum(tie, 0) - tie
    stays = (ids < vocab) & ((key > bound) | ((tie > 0) & (rank < ties)))
    w = tl.exp2((x - peak) * factor)
    return tl.where(stays & (w >= floor), w, 0.0), seen + tl.sum(tie, 0)
