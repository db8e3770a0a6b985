"""Shorter ways to the end of a grammar than the first one found.

    way: {" | kil | ograms | ": | ... | }      at every choice: take another token, close from there

`search` looks at everything, and so loses itself in the digits of two numbers. Here one whole way is
known already, and only what differs from it in one choice at a time is looked at, again and again
until nothing gets shorter. Then the same text is cut into as few tokens as there can be.
"""

from __future__ import annotations

from collections.abc import Sequence

import llguidance
import numpy as np

from agentkv.engine.run.closing import Closer
from agentkv.engine.run.grammar_tokens import GrammarTokens

_STEPS = 6000
"""Tokens that all ways which are tried may have; each takes some 50 us."""


def shorter(closer: Closer, matcher: llguidance.LLMatcher, way: Sequence[int]) -> list[int]:
    """A way from where `matcher` stands that has as many tokens as `way`, or fewer.

    `way` must lead to an end. Leaves the matcher as it was; the same result for the same state.
    """
    best, spent, at = list(way), 0, 0
    while at < len(best) and spent < _STEPS:
        if at:
            matcher.try_consume_tokens(best[:at])
        found = None
        for step in closer.choices(matcher):
            if spent >= _STEPS or step == best[at : at + len(step)]:
                continue
            spent += len(best) - at
            took = matcher.try_consume_tokens(step)
            rest = len(best) - 1 - at - took
            tail = closer.close(matcher, rest) if took == len(step) and rest >= 0 else None
            if took:
                matcher.rollback(took)
            if tail is not None:
                found = [*best[:at], *step, *tail]
                best = found
        if at:
            matcher.rollback(at)
        at += found is None
    return _recut(closer.tokens, matcher, best)


def _recut(tokens: GrammarTokens, matcher: llguidance.LLMatcher, way: list[int]) -> list[int]:
    """The text of `way` in as few tokens as possible; control tokens stay as they are."""
    known, longest = tokens.pieces
    out: list[int] = []
    run = b""
    for token in [*way, -1]:
        piece = tokens.table.decode_bytes([token]) if token >= 0 else b""
        if known.get(piece) is not None:
            run += piece
            continue
        # steps[i]: how many tokens the rest of the run from byte i takes, and the first of them.
        steps: list[tuple[float, int, int]] = [(np.inf, 0, 0)] * len(run) + [(0, 0, 0)]
        for i in range(len(run) - 1, -1, -1):
            steps[i] = min(
                (1 + steps[j][0], -j, known[run[i:j]])
                for j in range(i + 1, min(len(run), i + longest) + 1)
                if run[i:j] in known
            )
        i = 0
        while i < len(run):
            out.append(steps[i][2])
            i = -steps[i][1]
        run = b""
        if token >= 0:
            out.append(token)
    ended = [*out, tokens.table.eos_token]
    fits = len(out) < len(way) and matcher.validate_tokens(ended) == len(ended)
    return out if fits else way
