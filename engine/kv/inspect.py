"""A disk cache's directory, seen from outside: what is in it, whether it is sound, and what may go.

Reading works beside a server that uses the directory: the index is opened for reading only, and
nothing is locked. Removing takes the directory for this process, and is refused while a server has
it. Nothing here shows token ids or text. Imports no torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.disk import hold_directory, open_file, open_index
from agentkv.engine.kv.groups import HALF_LIFE
from agentkv.engine.kv.page_file import Head, read_head
from agentkv.engine.types import IntArray

_COLUMNS = "row, tag, layout, parent, start, length(ids) / 4, name, size, created, used, hits"

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class CacheUnavailable(Exception):
    """A directory that is none, or that somebody else holds; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the index. Times in seconds since 1970, `size` in bytes."""

    row: int
    tag: str
    layout: str
    parent: int | None
    start: int
    tokens: int
    name: str
    size: int
    created: float
    used: float
    hits: float

    @property
    def end(self) -> int:
        return self.start + self.tokens

    def uses(self, now: float) -> float:
        """Hits, as they count now: half after six hours."""
        return float(self.hits * 0.5 ** (max(0.0, now - self.used) / HALF_LIFE))


@dataclass(frozen=True, slots=True)
class Shape:
    """A layout that the directory has groups of: the model's name as it was served, and the facts of
    the header without those of one group. Empty where neither index nor files say."""

    key: str
    label: str | None
    facts: dict[str, Any]

    @property
    def model(self) -> str:
        """The model's name, or its fingerprint."""
        return self.label or str(self.facts.get("model", "unknown"))[:16]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it should be. `row`: None for a file without one."""

    name: str
    why: str
    row: int | None = None


class CacheDirectory:
    """The directory of a disk cache, for reading; a context manager.

    Raises `CacheUnavailable` when it is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser()
        index = self.path / "index.sqlite"
        if not index.is_file() or not (self.path / "groups").is_dir():
            raise CacheUnavailable(
                f"{self.path} is no disk cache: it has no index.sqlite and no groups. Name the "
                "directory that a server was given with --disk-cache."
            )
        self._db = self._open(index)

    def __enter__(self) -> CacheDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def _open(self, index: Path) -> sqlite3.Connection:
        error: sqlite3.Error | None = None
        # Where not even SQLite's side files may be made, nobody else writes either.
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            db = sqlite3.connect(f"file:{quote(str(index))}?{mode}", uri=True, timeout=5)
            try:
                db.execute("SELECT count(*) FROM groups").fetchone()
            except sqlite3.Error as problem:
                db.close()
                error = problem
            else:
                return db
        raise CacheUnavailable(f"The index of {self.path} cannot be read: {error}.")

    # -- what there is

    def entries(self, *, layout: str | None = None) -> list[Entry]:
        """Parents before children."""
        where, values = ("WHERE layout = ?", (layout,)) if layout is not None else ("", ())
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM groups {where} ORDER BY start, row", values
        )
        return [Entry(*row) for row in rows]

    def ids(self, entry: Entry) -> IntArray:
        """Token ids of a group, int32."""
        found = self._db.execute("SELECT ids FROM groups WHERE row = ?", (entry.row,)).fetchone()
        if found is None:
            raise CacheUnavailable(f"The group {entry.name} has left the cache meanwhile.")
        return np.frombuffer(found[0], dtype="<i4").astype(np.int32)

    def shapes(self) -> dict[str, Shape]:
        """By the key that entries name."""
        known: dict[str, tuple[str | None, str]] = {}
        with contextlib.suppress(sqlite3.Error):  # an index of an earlier version has no such table
            rows = self._db.execute("SELECT layout, label, facts FROM layouts")
            known = {key: (label, facts) for key, label, facts in rows}
        out = {key: Shape(key, label, _shape(json.loads(f))) for key, (label, f) in known.items()}
        for key in {e.layout for e in self.entries()} - set(out):
            out[key] = Shape(key, None, self._facts_of(key))
        return out

    def _facts_of(self, key: str) -> dict[str, Any]:
        for entry in self.entries(layout=key):
            with contextlib.suppress(OSError, ValueError), open_file(self.file(entry.name)) as file:
                return _shape(read_head(file.read).facts)
        return {}

    def file(self, name: str) -> Path:
        return self.path / "groups" / f"{name}.kv"

    def find(self, name: str) -> Entry:
        """The group whose name begins so. Raises `InvalidRequest` when there is none, or several."""
        found = [e for e in self.entries() if e.name.startswith(name.lower())] if name else []
        if len(found) != 1:
            what = "no group" if not found else f"{len(found)} groups"
            raise InvalidRequest(
                f"There is {what} in {self.path} whose name begins with {name!r}; `agentkv cache "
                "ls` lists them.",
                param="name",
            )
        return found[0]

    def chain(self, entry: Entry) -> list[Entry]:
        """A group and what it hangs from, first token first."""
        rows = {e.row: e for e in self.entries(layout=entry.layout)}
        out = [entry]
        while (parent := out[-1].parent) is not None and parent in rows:
            out.append(rows[parent])
        return out[::-1]

    def holder(self) -> str | None:
        """Who uses the directory now: `process 123`, or None."""
        try:
            handle = os.open(self.path / "lock", os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.read(handle, 32).decode(errors="replace").strip() or "another process"
        finally:
            os.close(handle)
        return None

    # -- whether it is sound

    def check(self, entry: Entry) -> Head:
        """Read a whole group and compare it with the index. Raises `OSError` or `ValueError`."""
        with open_file(self.file(entry.name)) as file:
            head = read_head(file.read)
            facts = head.facts
            named = (facts["namespace"], facts["start"], facts["tokens"])
            if named != (entry.tag, entry.start, entry.tokens):
                raise ValueError("the header names another namespace or place than the index")
            if not np.array_equal(head.ids, self.ids(entry)):
                raise ValueError("the token ids beside the pages are not the index's")
            for page in range(head.pages):
                head.check(page, file.read(int(facts["page_bytes"])))
            if file.read(1):
                raise ValueError("the file is longer than its header says")
            return head

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[Fault]:
        """Read every group of every layout. `progress`: groups done, groups in all."""
        entries = self.entries()
        rows = {e.row: e for e in entries}
        faults: list[Fault] = []
        for number, entry in enumerate(entries, 1):
            try:
                self.check(entry)
                parent = rows.get(entry.parent) if entry.parent is not None else None
                if (entry.parent is None) != (entry.start == 0) or (
                    entry.parent is not None and parent is None
                ):
                    raise ValueError("what comes before it is not in the index")
            except CacheUnavailable:
                continue
            except (OSError, ValueError) as error:
                if self._still(entry):  # a server may have removed it just now
                    why = "the file is missing" if isinstance(error, FileNotFoundError) else error
                    faults.append(Fault(entry.name, str(why), entry.row))
            if progress is not None:
                progress(number, len(entries))
        if self.holder() is None:  # a server's files are there a moment before their rows
            known = {e.name for e in self.entries()}
            for file in sorted((self.path / "groups").iterdir()):
                if file.name.removesuffix(".kv") not in known:
                    faults.append(Fault(file.name, "a file that the index does not know"))
        return faults

    def _still(self, entry: Entry) -> bool:
        sql = "SELECT 1 FROM groups WHERE row = ?"
        return self._db.execute(sql, (entry.row,)).fetchone() is not None


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all groups of one layout."""

    shape: Shape
    groups: int
    tokens: int
    bytes: int
    namespaces: int
    hits: float
    """As they count now."""
    oldest_use: float
    newest_use: float


def totals(there: CacheDirectory) -> list[Totals]:
    """Sums by layout, the largest first."""
    now = time.time()
    shapes = there.shapes()
    by_layout: dict[str, list[Entry]] = {}
    for entry in there.entries():
        by_layout.setdefault(entry.layout, []).append(entry)
    out = [
        Totals(
            shapes[key],
            len(found),
            sum(e.tokens for e in found),
            sum(e.size for e in found),
            len({e.tag for e in found}),
            sum(e.uses(now) for e in found),
            min(e.used for e in found),
            max(e.used for e in found),
        )
        for key, found in by_layout.items()
    ]
    return sorted(out, key=lambda t: -t.bytes)


def text_of(ids: IntArray, tokenizer: Path) -> str:
    """Token ids as text, by a `tokenizer.json` or a folder that has one. Raises `InvalidRequest`."""
    from tokenizers import Tokenizer

    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    try:
        return str(Tokenizer.from_file(str(path)).decode(ids.tolist(), skip_special_tokens=False))
    except Exception as error:  # the library raises nothing narrower
        raise InvalidRequest(f"{path} is no tokenizer: {error}.", param="tokenizer") from error


# -- removing


def repair(path: Path, faults: list[Fault]) -> int:
    """Remove what `verify` found, and what hangs from it. Returns the groups removed."""
    with _held(path) as db:
        rows = [f.row for f in faults if f.row is not None]
        count = _remove(path, db, rows)
        for fault in faults:
            if fault.row is None:
                with contextlib.suppress(OSError):
                    (path.expanduser() / "groups" / fault.name).unlink()
        return count


def purge(
    path: Path,
    *,
    older_than: float | None = None,
    model: str | None = None,
    tag: str | None = None,
) -> tuple[int, int]:
    """Remove groups: all of them, or those that nobody used for `older_than` seconds, of one model
    (its name, or the beginning of its fingerprint), of one namespace (the beginning of its tag), as
    far as these are given. A group goes with what hangs from it, so one that something newer hangs
    from stays. Returns groups and bytes. Raises `CacheUnavailable`, or `InvalidRequest` when there
    is no such model."""
    with CacheDirectory(path) as there:
        entries = chosen(there, model=model, tag=tag)
        everything = there.entries()
    now = time.time()
    last = {e.row: e.used for e in everything}
    for entry in sorted(everything, key=lambda e: -e.start):
        if entry.parent in last:
            last[entry.parent] = max(last[entry.parent], last[entry.row])
    rows = [e.row for e in entries if older_than is None or now - last[e.row] > older_than]
    with _held(path) as db:
        before = _bytes(db)
        return _remove(path, db, rows), before - _bytes(db)


def chosen(there: CacheDirectory, *, model: str | None, tag: str | None) -> list[Entry]:
    """The groups of a model and a namespace, as far as they are named. Raises `InvalidRequest`."""
    entries = there.entries()
    if model is not None:
        shapes = there.shapes()
        keys = {
            key
            for key, shape in shapes.items()
            if model == shape.label or (model and str(shape.facts.get("model")).startswith(model))
        }
        if not keys:
            have = ", ".join(sorted({s.model for s in shapes.values()})) or "none"
            raise InvalidRequest(
                f"There is no model {model!r} in {there.path}; it has: {have}.", param="model"
            )
        entries = [e for e in entries if e.layout in keys]
    if tag is not None:
        entries = [e for e in entries if e.tag.startswith(tag.lower())]
    return entries


def age_of(text: str) -> float:
    """Seconds: a number with a unit, as `90m`, `12h`, `7d`. Raises `InvalidRequest`."""
    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    try:
        seconds = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidRequest(
            f"an age must be a number and a unit, such as 90m, 12h or 7d, got {text!r}.",
            param="older_than",
        )
    return seconds


@contextlib.contextmanager
def _held(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        guard = hold_directory(path.expanduser())
    except InvalidRequest as error:
        raise CacheUnavailable(f"{error} To change it, stop that process first.") from error
    try:
        db = open_index(path.expanduser())
        try:
            yield db
        finally:
            db.close()
    finally:
        guard.close()


def _remove(path: Path, db: sqlite3.Connection, rows: list[int]) -> int:
    below: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for row, parent, name in db.execute("SELECT row, parent, name FROM groups"):
        names[row] = name
        below.setdefault(parent, []).append(row)
    gone: list[int] = []
    stack = [row for row in rows if row in names]
    seen: set[int] = set()
    while stack:
        row = stack.pop()
        if row not in seen:
            seen.add(row)
            gone.append(row)
            stack += below.get(row, [])
    db.executemany("DELETE FROM groups WHERE row = ?", [(row,) for row in gone])
    db.commit()
    for row in gone:
        with contextlib.suppress(OSError):
            (path.expanduser() / "groups" / f"{names[row]}.kv").unlink(missing_ok=True)
    return len(gone)


def _bytes(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(sum(size), 0) FROM groups").fetchone()[0])


def _shape(facts: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in facts.items() if k not in ("namespace", "start", "tokens")}
