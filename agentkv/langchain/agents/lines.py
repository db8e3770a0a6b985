"""Which lines of a system prompt stay from call to call: what was seen, and no guess at meaning.

A text is cut into atoms that never come apart: a line; a fence, a table, an ordered list, a block
between tags or brackets. The `core` of a prompt is what all its versions had in common, in order;
it only ever shrinks, so each atom can break a prefix once. What is not in the core changes.

A label belongs to what it labels: a line that ends with a colon, or a heading whose section changes
to its end, goes where its text goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

MAX_ATOMS = 2000
"""A prompt of more is left as it is: comparing grows with the square."""
ENOUGH = 160
"""Characters in common that make two texts versions of one prompt."""

_FENCE = re.compile(r"\s*(```+|~~~+)")
_TAG = re.compile(r"\s*<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>\s*$")
_ORDERED = re.compile(r"\s*\d+[.)]\s")
_ITEM = re.compile(r"\s*[-*+•]\s")
_HEADING = re.compile(r"\s*#{1,6}\s")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of atoms that all stay, or all change. `block` says which of the texts it is from, and
    `line` where it starts, counted from 1 through all of them."""

    text: str
    changes: bool
    block: int
    line: int


def atoms(text: str) -> list[str]:
    """`text` in atoms whose concatenation it is. Blank lines belong to the atom before them."""
    lines = text.splitlines(keepends=True)
    out: list[str] = []
    at = 0
    while at < len(lines):
        end = _end(lines, at)
        while end < len(lines) and not lines[end].strip():
            end += 1
        out.append("".join(lines[at:end]))
        at = end
    return out


def _end(lines: Sequence[str], at: int) -> int:
    """Where the atom that starts at line `at` ends."""
    line = lines[at]
    fence = _FENCE.match(line)
    if fence:
        for i in range(at + 1, len(lines)):
            if lines[i].strip().startswith(fence.group(1)):
                return i + 1
        return len(lines)
    tag = _TAG.match(line)
    if tag:
        return _closed(lines, at, tag.group(1)) or at + 1
    if line.rstrip().endswith(("{", "[")):
        return _balanced(lines, at) or at + 1
    if line.lstrip().startswith("|"):
        return _while(lines, at, lambda s: s.lstrip().startswith("|"))
    if _ORDERED.match(line):
        return _while(lines, at, lambda s: bool(_ORDERED.match(s)) or s[:1] in " \t")
    if _ITEM.match(line):
        deep = len(line) - len(line.lstrip())
        return _while(lines, at, lambda s: len(s) - len(s.lstrip()) > deep and not _ITEM.match(s))
    return at + 1


def _while(lines: Sequence[str], at: int, wanted: Callable[[str], bool]) -> int:
    end = at + 1
    while end < len(lines) and lines[end].strip() and wanted(lines[end]):
        end += 1
    return end


def _closed(lines: Sequence[str], at: int, name: str) -> int | None:
    depth = 0
    for i in range(at, len(lines)):
        opened = _TAG.match(lines[i])
        if opened and opened.group(1) == name:
            depth += 1
        elif lines[i].strip() == f"</{name}>":
            depth -= 1
            if depth == 0:
                return i + 1
    return None


def _balanced(lines: Sequence[str], at: int) -> int | None:
    depth = 0
    for i in range(at, len(lines)):
        bare = re.sub(r'"(?:\\.|[^"\\])*"', "", lines[i])
        depth += sum(bare.count(c) for c in "{[") - sum(bare.count(c) for c in "}]")
        if depth <= 0:
            return i + 1
    return None


class Core:
    """What all versions of one system prompt had in common, in order. A prompt is a list of texts:
    the blocks of a message."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._atoms = [atom for text in texts for atom in atoms(text)]

    def copy(self) -> Core:
        out = Core(())
        out._atoms = list(self._atoms)
        return out

    def fits(self, texts: Sequence[str]) -> bool:
        """Whether this is another version of the prompt, and not another prompt."""
        given = [atom for text in texts for atom in atoms(text)]
        shared = sum(len(given[i].strip()) for i in _common(self._atoms, given))
        size = min(sum(len(a.strip()) for a in self._atoms), sum(len(a.strip()) for a in given))
        return shared >= min(ENOUGH, max(1, size // 2))

    def split(self, texts: Sequence[str]) -> list[Piece]:
        """The prompt in pieces that stay and pieces that change; what did not stay leaves the core.

        A piece that stays is given in the bytes in which it was first seen: the blank lines at its
        end depend on what followed.
        """
        owners = [(i, atom) for i, text in enumerate(texts) for atom in atoms(text)]
        given = [atom for _, atom in owners]
        if len(given) > MAX_ATOMS:
            return [Piece(text, False, i, 1) for i, text in enumerate(texts)]
        while True:
            kept = _common(self._atoms, given)
            changes = [i not in kept for i in range(len(given))]
            _labels(given, changes)
            first = [given[i] if gone else self._atoms[kept[i]] for i, gone in enumerate(changes)]
            before, self._atoms = (
                self._atoms,
                [atom for atom, gone in zip(first, changes, strict=True) if not gone],
            )
            # Once more when the core shrank, so that the same text is cut the same way next time.
            if len(self._atoms) == len(before):
                break
        return _pieces(first, owners, changes)


def _common(before: Sequence[str], now: Sequence[str]) -> dict[int, int]:
    """Index in `now` -> index in `before`, of atoms that are in both in the same order; of equal
    ones the first."""
    a, b = [s.strip() for s in before], [s.strip() for s in now]
    if len(a) > MAX_ATOMS or len(b) > MAX_ATOMS:
        return {}
    found = _places(range(len(a)), a, b)
    if len(found) < len(a):
        matcher = SequenceMatcher(None, a, b, autojunk=False)
        shared = [m.a + i for m in matcher.get_matching_blocks() for i in range(m.size)]
        found = _places(shared, a, b)
    return found


def _places(wanted: Iterable[int], a: Sequence[str], b: Sequence[str]) -> dict[int, int]:
    """The first place in `b`, in order, of each of the `wanted` of `a`; up to one that is missing."""
    found: dict[int, int] = {}
    at = 0
    for i in wanted:
        while at < len(b) and b[at] != a[i]:
            at += 1
        if at == len(b):
            break
        found[at] = i
        at += 1
    return found


def _labels(given: Sequence[str], changes: list[bool]) -> None:
    """Mark the labels of what changes as changing too."""
    for i in range(len(given) - 2, -1, -1):
        if changes[i] or not changes[i + 1]:
            continue
        last = given[i].rstrip().rsplit("\n", 1)[-1]
        if last.endswith((":", "：")) and "\n" not in given[i].strip():
            changes[i] = True
        elif _HEADING.match(given[i]):
            end = i + 1
            while end < len(given) and changes[end]:
                end += 1
            changes[i] = end == len(given) or bool(_HEADING.match(given[end]))


def _pieces(
    first: Sequence[str], owners: Sequence[tuple[int, str]], changes: Sequence[bool]
) -> list[Piece]:
    out: list[Piece] = []
    line = 1
    for text, (block, original), gone in zip(first, owners, changes, strict=True):
        last = out[-1] if out else None
        if last is not None and last.block == block:
            if not last.text.endswith("\n"):
                last = out[-1] = replace(last, text=last.text + "\n")
            if last.changes == gone:
                out[-1] = replace(last, text=last.text + text)
                line += original.count("\n")
                continue
        elif last is not None:
            line += 1  # a block starts on a line of its own
        out.append(Piece(text, gone, block, line))
        line += original.count("\n")
    return out
