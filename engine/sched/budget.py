"""Budget: how many prompt tokens go into a step, and whose.

A step takes `fixed + tokens * per_token`. How much of that is fixed decides what may share a step:

- On a device that waits for its memory, a few thousand tokens take about as long as one. Prompts are
  packed together up to the token budget: whoever gets in gets in for free.
- On a CPU the fixed part is worth some 25 tokens. Whatever shares the step in which a prompt ends puts
  off that prompt's first token by all of its own time, and saves next to nothing. So a prompt that ends
  has its step to itself, but for `packed` tokens.

For the same reason steps are half as long there while others decode: each step brings them a token
that they would need a step for in any case, so twice as many steps cost nothing, and they wait half as
long for it.
"""

from __future__ import annotations

from dataclasses import dataclass

CPU_PACKED = 32
"""Tokens that a CPU computes in a step in about the time that the step takes anyway. Reading a weight
takes as long as computing with it for 15 to 30 tokens, whatever the model's size."""


@dataclass(slots=True)
class Budget:
    """Of one step. `left`: prompt tokens that it may still take. `taken`: those that it has. `ends`:
    some prompt's last token is among them."""

    left: int
    packed: int
    taken: int = 0
    ends: bool = False

    @classmethod
    def of(cls, most: int, packed: int | None, decoding: int) -> Budget:
        """`most`: tokens of a step, `decoding` of which are spoken for. `packed`: None where `most`
        tokens may be packed."""
        left = most - decoding
        if packed is None or packed >= most:
            return cls(left, most)
        if decoding:
            left = min(left, max(packed, most // 2))
        return cls(left, packed)

    def share(self, pending: int) -> int:
        """How many of a prompt's `pending` tokens this step can take; 0 when it is to wait."""
        count = min(self.left, pending)
        if self.ends and self.taken + count > self.packed:
            return 0
        return count

    def take(self, count: int, *, ends: bool) -> None:
        """Book what `share` gave."""
        self.left -= count
        self.taken += count
        self.ends = self.ends or ends
