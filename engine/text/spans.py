"""Which part of a request each character, and then each token, of a prompt belongs to.

    template text | header  CONTENT  footer | header  CONTENT  footer | generation prompt
                   \\______ messages[0] ____/ \\______ messages[1] ____/

A message's span takes in its own header and footer. Marks (see `marks.py`) tell where contents
are; what stands between two contents is divided behind the token that ends a turn.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentkv.engine.text.canonical import digest
from agentkv.engine.text.owners import Owner, Owners
from agentkv.engine.types import IntArray, Span

TURN_ENDS = frozenset(
    [
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|eot|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "</s>",
        "<end_of_turn>",
        "<turn|>",
        "<｜end▁of▁sentence｜>",
        "<|END_OF_TURN_TOKEN|>",
        "<|return|>",
        "<|call|>",
    ]
)
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Region:
    """Characters `[start, end)` of the prompt, and whose they are."""

    start: int
    end: int
    owner: Owner


def divide(
    text: str,
    events: Sequence[tuple[int, int]],
    owners: Owners,
    controls: Sequence[tuple[int, int]],
    *,
    turn_ends: frozenset[str],
    generation_prompt: bool,
) -> list[Region]:
    """The regions of `text`: disjoint, in order, covering all of it, none of them empty.

    `events` are places inside the content of owners; `controls` the template's control tokens.
    """
    ends = turn_ends | TURN_ENDS

    def turns(low: int, high: int) -> tuple[list[int], int | None]:
        """Where turns end between two contents (white space included), and the first control."""
        first = bisect_left(controls, (low, low))
        inside = controls[first : bisect_left(controls, (high, high), lo=first)]
        places = []
        for a, b in inside:
            if text[a:b].strip() in ends:
                found = _SPACE.match(text, b, high)
                places.append(found.end() if found else b)
        return places, inside[0][0] if inside else None

    def seam(low: int, high: int, left: int | None) -> int:
        """Where, between two contents, the first one's footer ends."""
        if low == high and low > 0 and text[low - 1] == " ":
            return low - 1  # tokenizers join a space to the word behind it
        places, control = turns(low, high)
        if places:
            return places[-1]
        if control is not None:
            return control
        if left is not None and left == owners.tools:
            for line in ("\n\n", "\n"):
                at = text.rfind(line, low, high)
                if at >= 0:
                    return at + len(line)
        return low

    def silent(low: int, high: int, left: int | None, after: int | None) -> list[tuple[int, int]]:
        """Messages without content before message `after`: an empty tool result, say."""
        before = -1 if left is None else owners.message[left]
        if after is None or before is None or after <= before + 1:
            return []
        places, _ = turns(low, high)
        missing = [owners.calls[i] for i in range(before + 1, after)]
        if len(places) != len(missing) + (left is not None):
            return []
        return list(zip(places if left is not None else [0, *places], missing, strict=False))

    cuts: list[tuple[int, int | None]] = []  # (start, owner number; None is the template)
    here: int | None = None
    at = 0
    for place, owner in events:
        if owner == here:
            at = max(at, place)
            continue
        if owner >= len(owners.all):
            continue  # a template has torn a mark apart
        begin = seam(at, place, here)
        between = silent(at, place, here, owners.message[owner])
        if here is None and begin > 0 and not between:
            cuts.append((0, None))
        cuts += between
        cuts.append((begin, owner))
        here, at = owner, place
    tail = Owner("generation_prompt", "template")
    preamble = Owner("preamble", "template")
    starts: list[tuple[int, Owner]] = [
        (start, preamble if number is None else owners.all[number]) for start, number in cuts
    ]
    rest = silent(at, len(text), here, len(owners.calls))
    starts += [(start, owners.all[number]) for start, number in rest]
    if not starts:
        starts.append((0, preamble))
    if generation_prompt:
        begin = seam(at, len(text), here)
        if begin < len(text):
            starts.append((begin, tail))
    return merge(starts, len(text))


def merge(starts: Sequence[tuple[int, Owner]], length: int) -> list[Region]:
    """Regions from their beginnings: empty ones dropped, equal neighbours joined, names unique."""
    regions: list[Region] = []
    seen: dict[str, int] = {}
    for index, (start, owner) in enumerate(starts):
        end = starts[index + 1][0] if index + 1 < len(starts) else length
        start = max(start, regions[-1].end if regions else 0)
        if end <= start:
            continue
        if not regions:
            start = 0
        if regions and regions[-1].owner.name == owner.name:
            regions[-1] = Region(regions[-1].start, end, regions[-1].owner)
            continue
        regions.append(Region(start, end, owner))
    out: list[Region] = []
    for region in regions:
        name = region.owner.name
        seen[name] = seen.get(name, 0) + 1
        owner = region.owner
        if seen[name] > 1:  # a template that writes one part at two places
            owner = Owner(
                f"{name}@{seen[name]}",
                owner.kind,
                owner.role,
                owner.stability,
                owner.digest,
                owner.items,
            )
        out.append(Region(region.start, region.end, owner))
    return out


def token_spans(regions: Sequence[Region], starts: IntArray, text: str) -> tuple[Span, ...]:
    """Spans over tokens. `starts`: the character at which each token starts, int32 `[n]`.

    A token that crosses a border belongs to the region in which it starts.
    """
    total = len(starts)
    borders = np.searchsorted(starts, [r.start for r in regions], side="left").tolist()
    spans: list[Span] = []
    for index, region in enumerate(regions):
        low = borders[index] if spans else 0
        high = borders[index + 1] if index + 1 < len(regions) else total
        if high <= low:
            continue
        owner = region.owner
        spans.append(
            Span(
                name=owner.name,
                kind=owner.kind,
                start=low,
                end=high,
                role=owner.role,
                stability=owner.stability,
                digest=owner.digest or digest(text[region.start : region.end]),
                items=owner.items,
            )
        )
    return tuple(spans)
