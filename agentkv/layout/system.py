"""A system message: which of its units may move, and the order of those that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from agentkv.layout import tail
from agentkv.layout.arrangement import Move, Refusal
from agentkv.layout.learn import tokens
from agentkv.layout.order import CHANCES, expected_order, nested_order
from agentkv.layout.points import closing, tie
from agentkv.prompt.prompt import SYSTEM_ROLES, Message
from agentkv.prompt.segment import Segment, kind_rank, stability_rank

LASTING = stability_rank("session")
_FIXED = (stability_rank("build"), kind_rank("instructions"))
_ENDS = ".!?:…。！？)]}>"


def settle(
    message: Message,
    stay: str | None,
    chances: Mapping[str, float],
    moves: list[Move],
    refused: list[Refusal],
) -> tuple[Message, list[Segment]]:
    """A system message with its units in order, and the blocks that leave it for the tail.

    `stay` says why nothing can go to the tail (None: it can). `chances` are measured chances of
    units that may be placed by expected cost; the others go by their levels.
    """
    units = message.units
    last = closing(units[-1].content) if units else None
    series = _series(units)
    runs: list[list[Segment]] = [[]]
    gone: list[Segment] = []
    for i, unit in enumerate(units):
        if not unit.declared:
            runs[-1].append(unit)
            continue
        leaves = stability_rank(unit.stability) > LASTING
        sinks = unit.name in chances or any(_rank(w) < _rank(unit) for w in units[i + 1 :])
        reason = tie(units, i) if leaves or sinks else None
        if leaves and reason is None and unit.kind == "examples":
            reason = series
        if leaves and reason is None and stay is None:
            gone.append(tail.context_block(unit))
            moves.append(Move(unit.name, "tail"))
            continue
        if reason is not None:
            refused.append(Refusal(unit.name, reason))
            # What is tied is a wall: the units before and behind it are sorted apart.
            runs.extend([[unit], []])
            continue
        if leaves:
            refused.append(Refusal(unit.name, stay or ""))
        runs[-1].append(unit)
    kept: list[Segment] = []
    for run in runs:
        held = last if run and run[-1] is units[-1] else None
        kept.extend(_sorted(run, held, chances, moves, refused))
    return replace(message, units=spaced(tuple(kept))), gone


def _series(units: Sequence[Segment]) -> str | None:
    """Why examples may not leave: their order is kept, so all of them go or none."""
    examples = [i for i, unit in enumerate(units) if unit.kind == "examples"]
    fast = [i for i in examples if stability_rank(units[i].stability) > LASTING]
    if len({units[i].stability for i in examples}) > 1 or (
        fast and any(tie(units, i) for i in examples)
    ):
        return "examples keep the order they were given in, and not all of them can leave."
    return None


def _sorted(
    run: Sequence[Segment],
    last: str | None,
    chances: Mapping[str, float],
    moves: list[Move],
    refused: list[Refusal],
) -> list[Segment]:
    """A run of units in order; `last` is the closing reminder that its last unit ends with."""
    before: list[tuple[int, int]] = []
    series = [i for i, unit in enumerate(run) if unit.kind == "examples"]
    before.extend(pairwise(series))
    if last is not None:
        before.extend((i, len(run) - 1) for i in range(len(run) - 1))
    ranks = [_rank(unit) for unit in run]
    order = nested_order(ranks, before)
    if any(unit.name in chances for unit in run):
        order = _by_cost(run, order, before, chances)
    _say_why(run, order, ranks, last, refused)
    for i, unit in enumerate(run):
        place = order.index(i)
        if any(j < place for j in (order.index(k) for k in range(i + 1, len(run)))):
            moves.append(Move(unit.name, "behind_static"))
    return [run[i] for i in order]


def _by_cost(
    run: Sequence[Segment],
    order: Sequence[int],
    before: Sequence[tuple[int, int]],
    chances: Mapping[str, float],
) -> list[int]:
    """The order of least expected cost, in which only units with a measured chance leave the order
    of levels, and none of them is put ahead of unmarked text that stood ahead of it."""
    place = {i: k for k, i in enumerate(order)}
    fixed = [i for i in order if run[i].name not in chances]
    pairs = [*pairwise(fixed), *before]
    for i, unit in enumerate(run):
        if unit.name in chances:
            pairs.extend((j, i) for j in range(i) if not run[j].declared)
    # `expected_order` reads pairs and keeps ties in the order given: that of the levels.
    found = expected_order(
        [chances.get(run[i].name, CHANCES[run[i].stability]) for i in order],
        [tokens(run[i]) for i in order],
        [(place[a], place[b]) for a, b in pairs],
    )
    return [order[k] for k in found]


def _say_why(
    run: Sequence[Segment],
    order: Sequence[int],
    ranks: Sequence[tuple[int, int]],
    last: str | None,
    refused: list[Refusal],
) -> None:
    """A sentence for what a constraint held back."""
    end = len(run) - 1
    if last is not None and any(ranks[i] > ranks[end] for i in range(end)):
        refused.append(
            Refusal(run[end].name, f"it closes the message ({_clip(last)!r}), and stays last.")
        )
    series = [i for i in order if run[i].kind == "examples"]
    if any(ranks[a] > ranks[b] for a, b in pairwise(series)):
        refused.append(Refusal(run[series[0]].name, "examples keep the order they were given in."))


def _rank(unit: Segment) -> tuple[int, int]:
    """Undeclared text never moves, so nothing may count as slower than it."""
    return max(unit.rank, _FIXED) if unit.declared else _FIXED


def _clip(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def with_blocks(
    messages: Sequence[Message],
    blocks: Sequence[Segment],
    *,
    ordered: bool,
    own_spacing: bool = False,
) -> tuple[Message, ...]:
    """`messages` with `blocks` in the last leading system message, which is made if there is none.

    `ordered` puts a block ahead of faster text, where that text is not tied to what precedes it,
    and ahead of a short text of its own that closes the message.
    """
    if not blocks:
        return tuple(messages)
    lead = 0
    while lead < len(messages) and messages[lead].role in SYSTEM_ROLES:
        lead += 1
    if not lead:
        return (Message("system", {}, spaced(tuple(blocks))), *messages)
    target = messages[lead - 1]
    units = list(target.units)
    for block in blocks:
        at = len(units)
        if ordered and at > 1 and units[-1].declared and closing(units[-1].content):
            at -= 1
        while ordered and at and units[at - 1].declared and units[at - 1].rank > block.rank:
            at -= 1
        if at < len(units) and tie(units, at) is not None:
            at = len(units)
        if at == len(units) and units and not own_spacing:
            block = replace(block, content="\n\n" + block.content)
        units.insert(at, block)
    joined = spaced(tuple(units)) if own_spacing else tuple(units)
    return (*messages[: lead - 1], replace(target, units=joined), *messages[lead:])


def spaced(units: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """A blank line at each joint where two sentences would touch without a space.

    The units' own text is kept; a block of ours always stands apart.
    """
    out: list[Segment] = []
    for unit in units:
        left = out[-1].content if out else ""
        text = unit.content
        if left and text and not left[-1].isspace() and not text[0].isspace():
            ours = unit.message < 0 or out[-1].message < 0
            if ours or left[-1] in _ENDS or (left[-1].isalnum() and text[0].isalnum()):
                unit = replace(unit, content="\n\n" + text)
        out.append(unit)
    return tuple(out)
