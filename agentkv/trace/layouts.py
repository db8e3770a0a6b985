"""The layout of a log's prompts: which blocks each call site sends every time, and behind how much
text that changes. Two layouts can be compared: what was swapped, added, dropped or reworded between
two days, whether or not it cost anything.

Bounded: a few sample calls of each of the most recent sites.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentkv.trace.call import Call
from agentkv.trace.causes.text import diff
from agentkv.trace.causes.units import Unit, units
from agentkv.trace.render import Renderer
from agentkv.trace.threads import Threads

SITES = 64
SAMPLES = 24
OFTEN = 0.8
"""Share of a site's samples that hold a block which is called fixed."""
LEAST = 16
"""Tokens of a block that is worth a line."""
SNIPPET = 120

Kind = Literal["swapped", "order", "changed", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece that a site sends (nearly) every time. `behind`: tokens of changing text in front of
    it, the mean over the samples; `after`: the name of the first part of that text."""

    key: str
    name: str
    role: str
    label: str
    text: str
    tokens: int
    place: float
    behind: float
    after: str | None


@dataclass(frozen=True, slots=True)
class Site:
    """Calls with one set-up. `begins`: the first words of its first fixed block."""

    calls: int
    tokens: int
    blocks: tuple[Block, ...]
    begins: str


@dataclass(frozen=True, slots=True)
class Layout:
    """`by_kind`: mean tokens of a call, by the kind of part they are in."""

    sites: tuple[Site, ...]
    by_kind: dict[str, float]


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """What became of one block between two logs.

    `swapped`: text that changes stands in front of it now (or no longer): `behind_was` and
    `behind_now` tokens of it, `other` the part that does. `order`: it stands elsewhere among the
    fixed blocks. `calls`: of the site, in the later log.
    """

    kind: Kind
    name_was: str | None
    name_now: str | None
    tokens_was: int
    tokens_now: int
    behind_was: float
    behind_now: float
    other: str | None
    calls: int
    text: str
    was: str | None = None
    now: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name_was": self.name_was,
            "name_now": self.name_now,
            "tokens_was": self.tokens_was,
            "tokens_now": self.tokens_now,
            "changing_tokens_in_front_was": round(self.behind_was),
            "changing_tokens_in_front_now": round(self.behind_now),
            "other": self.other,
            "calls": self.calls,
            "text": self.text,
            "was": self.was,
            "now": self.now,
        }


@dataclass(slots=True)
class _Site:
    calls: int = 0
    tokens: int = 0
    samples: list[list[Unit]] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)


def layout_of(calls: Iterable[Call], renderer: Renderer) -> Layout:
    """Read a log once."""
    threads = Threads()
    sites: OrderedDict[str, _Site] = OrderedDict()
    kinds: Counter[str] = Counter()
    count = 0
    for call in calls:
        if call.error is not None or not call.parts:
            continue
        rendered = renderer.render(call)
        place = threads.place(call)
        count += 1
        for span in rendered.prompt.spans:
            kinds[span.kind] += span.end - span.start
        site = sites.setdefault(place.group, _Site())
        sites.move_to_end(place.group)
        while len(sites) > SITES:
            sites.popitem(last=False)
        site.calls += 1
        site.tokens += rendered.tokens
        # One call of each session, as long as there are new ones: what is fixed in one
        # conversation need not be in all.
        most = SAMPLES // 2 if place.session in site.sessions else SAMPLES
        if len(site.samples) < most:
            site.samples.append(units(call, rendered))
            site.sessions.add(place.session)
    found = [_site(s) for s in sites.values()]
    found.sort(key=lambda s: -s.tokens)
    return Layout(tuple(found), {k: n / count for k, n in kinds.items()} if count else {})


def _site(raw: _Site) -> Site:
    samples = raw.samples
    held: Counter[str] = Counter()
    for sample in samples:
        held.update({u.key for u in sample})
    fixed = {k for k, n in held.items() if n >= max(2, OFTEN * len(samples))}
    seen: dict[str, list[tuple[int, float, str | None, Unit]]] = {}
    for sample in samples:
        behind, after = 0.0, None
        done: set[str] = set()
        for index, unit in enumerate(sample):
            if unit.key not in fixed or unit.key in done:
                behind += unit.tokens
                after = after or unit.name
                continue
            done.add(unit.key)
            seen.setdefault(unit.key, []).append((index, behind, after, unit))
    blocks = [_block(k, v) for k, v in seen.items()]
    blocks.sort(key=lambda b: b.place)
    begins = next((b.text for b in blocks if b.role != "tools"), "")
    return Site(raw.calls, raw.tokens, tuple(blocks), " ".join(begins[:SNIPPET].split()))


def _block(key: str, seen: Sequence[tuple[int, float, str | None, Unit]]) -> Block:
    unit = seen[-1][3]
    names = Counter(u.name for *_, u in seen)
    after = Counter(a for _, _, a, _ in seen if a is not None)
    return Block(
        key=key,
        name=names.most_common(1)[0][0],
        role=unit.role,
        label=unit.label,
        text=unit.text,
        tokens=unit.tokens,
        place=sum(i for i, *_ in seen) / len(seen),
        behind=sum(b for _, b, _, _ in seen) / len(seen),
        after=after.most_common(1)[0][0] if after else None,
    )


def layout_changes(before: Layout, after: Layout) -> list[LayoutChange]:
    """What changed in the fixed blocks of the sites that both logs have, most tokens first."""
    out: list[LayoutChange] = []
    left = list(before.sites)
    for site in after.sites:
        best = max(left, key=lambda s: _shared(s, site), default=None)
        if best is None or _shared(best, site) <= 0:
            continue
        left.remove(best)
        out += _site_changes(best, site)
    out.sort(key=lambda c: -c.calls * max(c.tokens_was, c.tokens_now))
    return out


def _shared(a: Site, b: Site) -> float:
    """Tokens in fixed blocks that both have, and a little for the same beginning."""
    keys = {x.key for x in a.blocks}
    same = float(sum(x.tokens for x in b.blocks if x.key in keys))
    labels = {x.label for x in a.blocks if x.label}
    same += sum(1.0 for x in b.blocks if x.label in labels)
    return same + (a.begins[:40] == b.begins[:40] and bool(a.begins))


def _site_changes(a: Site, b: Site) -> list[LayoutChange]:
    out: list[LayoutChange] = []
    old = {x.key: x for x in a.blocks}
    new = {x.key: x for x in b.blocks}
    both = [k for k in old if k in new]
    for key in both:
        was, now = old[key], new[key]
        if was.tokens >= LEAST and _crossed(was.behind, now.behind):
            other = now.after if now.behind > was.behind else was.after
            out.append(_change("swapped", was, now, b.calls, other=other))
    order_a = [k for k in both if old[k].tokens >= LEAST]
    order_b = sorted(order_a, key=lambda k: new[k].place)
    swapped = {(c.name_was, c.text) for c in out}
    for key, there in zip(order_a, order_b, strict=True):
        if key != there and (old[key].name, _snippet(old[key].text)) not in swapped:
            out.append(
                _change(
                    "order", old[key], new[key], b.calls, other=old[there].label or new[there].name
                )
            )
            break
    gone = [x for k, x in old.items() if k not in new]
    come = [x for k, x in new.items() if k not in old]
    for x in list(gone):
        match = _reworded(x, come)
        if match is not None:
            gone.remove(x)
            come.remove(match)
            out.append(_change("changed", x, match, b.calls))
    out += [_change("removed", x, None, b.calls) for x in gone if x.tokens >= LEAST]
    out += [_change("added", None, x, b.calls) for x in come if x.tokens >= LEAST]
    return out


def _crossed(was: float, now: float) -> bool:
    """Whether a block came behind text that changes, or out from behind it."""
    return (was < LEAST / 2) != (now < LEAST / 2) and abs(was - now) >= LEAST / 2


def _reworded(block: Block, others: Sequence[Block]) -> Block | None:
    """The block that stands for another one: the same tool, or most of its text."""
    for other in others:
        if block.role != other.role:
            continue
        if block.label and block.label == other.label:
            return other
        if not block.label and diff(block.text, other.text).alike >= 0.5:
            return other
    return None


def _change(
    kind: Kind, was: Block | None, now: Block | None, calls: int, *, other: str | None = None
) -> LayoutChange:
    block = now or was
    assert block is not None
    a = b = None
    if kind == "changed" and was is not None and now is not None:
        edits = diff(was.text, now.text).edits
        if edits:
            a, b = edits[0].was[:SNIPPET], edits[0].now[:SNIPPET]
    return LayoutChange(
        kind=kind,
        name_was=was.label or was.name if was is not None else None,
        name_now=now.label or now.name if now is not None else None,
        tokens_was=was.tokens if was is not None else 0,
        tokens_now=now.tokens if now is not None else 0,
        behind_was=was.behind if was is not None else 0.0,
        behind_now=now.behind if now is not None else 0.0,
        other=other,
        calls=calls,
        text=_snippet(block.text),
        was=a,
        now=b,
    )


def _snippet(text: str) -> str:
    return " ".join(text[: 2 * SNIPPET].split())[:SNIPPET]
