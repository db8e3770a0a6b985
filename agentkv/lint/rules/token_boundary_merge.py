"""KV604 token-boundary-merge."""

from __future__ import annotations

from agentkv.lint.context import Context
from agentkv.lint.price import Cost
from agentkv.lint.rules._hole import HoleRule, shown
from agentkv.lint.spot import Spot
from agentkv.lint.template import Hole


class TokenBoundaryMerge(HoleRule):
    """Static text runs into a value without anything between them.

    ## What it catches
    `f"{RULES}{question}"` where the rules end with a sentence and the value follows at once, as the
    first thing of the prompt that changes.

    ## Why it costs
    A tokenizer makes one token of the end of the rules and the beginning of the value, where it can.
    The last tokens of the static part then depend on the value, and with blocks of 16 tokens the
    whole last block does.

    ## Bad
    ```python
    prompt = f"{RULES}{question}"
    ```

    ## Good
    ```python
    prompt = f"{RULES}\\n\\n{question}"
    ```

    ## When it is wrong
    In formats where a line end would mean something, and in completion prompts whose last words the
    model continues. It costs few tokens a call; behind a colon it is reported at info.
    """

    code = "KV604"
    name = "token-boundary-merge"
    rank = 84
    most = "warning"
    inside = False

    def catches(self, spot: Spot, context: Context) -> bool:
        asked = _asked(spot)
        if (
            not (spot.dynamic or asked)
            or spot.placeholder
            or spot.piece == 0
            or spot.before < context.min_tokens
        ):
            return False
        if not _joins(_end(spot)):
            return False
        earlier = [
            p for i, j, p in spot.template.pieces() if (i, j) < spot.at and isinstance(p, Hole)
        ]
        return all(context.level(p) in ("build", "deploy") for p in earlier) and (
            asked or bool(spot.traits & {"question", "context", "history", "user_data", "memory"})
        )

    def cost(self, spot: Spot, context: Context) -> Cost | None:
        tokens = max(2, context.target.granularity)
        share = context.traffic.share(spot.level)
        return Cost(tokens, 0, share, "info" if _end(spot)[-1] in ":;" else "warning")

    def message(self, spot: Spot, cost: Cost, context: Context) -> str:
        unit = context.target.granularity
        block = f", and with them a block of {unit}" if unit > 1 else ""
        return (
            f"{shown(spot)} follows static text with nothing between: the last tokens in front of it "
            f"depend on its first letters{block}. End the static text with a line end."
        )


def _asked(spot: Spot) -> bool:
    """Whether a value of which nothing is known ends the message of the user that is sent."""
    parts = spot.template.parts
    return (
        spot.level == "unknown"
        and spot.request is not None
        and len(parts) > 0
        and parts[spot.part].role == "user"
        and spot.part == len(parts) - 1
        and spot.piece == len(parts[spot.part].pieces) - 1
    )


def _end(spot: Spot) -> str:
    """The static text right in front of a hole."""
    piece = spot.template.parts[spot.part].pieces[spot.piece - 1]
    while isinstance(piece, Hole):
        if not piece.inner or "conditional" in piece.traits or "loop" in piece.traits:
            return ""
        piece = piece.inner[-1]
    return piece.value


def _joins(text: str) -> bool:
    """Whether a text ends as a sentence or a word does, so that what follows runs into it."""
    end = text.rstrip()
    if end != text or not end:
        return False
    if end[-1] in ".!?:;":
        return True
    word = end.rsplit(None, 1)[-1]
    return end[-1].isalpha() and len(word) > 1 and not set(word) & set("/_<>=&#@")
