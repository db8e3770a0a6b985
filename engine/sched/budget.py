"""Budget: how many prompt tokens go into a step, and whose.

A step takes `fixed + tokens * per_token`. How much of that is fixed decides what may share a step:

- On a device that waits for its memory, a few thousand tokens take about as long as one. Prompts are
  packed together up to the token budget: whoever gets in gets in for free.
- On a CPU the fixed part is worth some 25 tokens. What shares the step in which a prompt ends puts off
  that prompt's first token by all of its own time; what it saves is the fixed part of a step of its own,
  to itself and to all who wait behind it. So it gets in when that is more: a few tokens, or many who wait.

For the same reason steps are half as long there while others decode: each step brings them a token
that they would need a step for in any case, so twice as many steps cost nothing, and they wait half as
long for it.
"""

from __future__ import annotations

from dataclasses import dataclass

CPU_FIXED = 24
"""The fixed part of a step on a CPU, in tokens: reading a weight takes as long as computing with it for
15 to 30 of them, whatever the model's size."""


@dataclass(slots=True)
class Budget:
    """Of one step. `left`: prompt tokens that it may still take. `fixed`: its fixed part in tokens; None
    where tokens take no time. `ends`: prompts that end in it."""

    left: int
    fixed: int | None
    ends: int = 0

    @classmethod
    def of(cls, most: int, fixed: int | None, decoding: int) -> Budget:
        """`most`: tokens of a step, `decoding` of which are spoken for."""
        left = most - decoding
        if fixed is not None and decoding:
            left = min(left, max(fixed, most // 2))
        return cls(left, fixed)

    def share(self, pending: int, waiting: int) -> int:
        """How many of a prompt's `pending` tokens this step takes; 0 when it is to wait for the next.
        `waiting`: prompts that want in, this one among them."""
        count = min(self.left, pending)
        if self.fixed is not None and self.ends * count > self.fixed * waiting:
            return 0
        return max(0, count)

    def take(self, count: int, *, ends: bool) -> None:
        """Book what `share` gave."""
        self.left -= count
        self.ends += ends
