"""DiskStore: K/V in files that outlive the process, and the index that says what is in them.

A *group* is one file: the K/V of tokens `[start, start + n)` of one prefix, in whole pages, with
its token ids beside it. Groups of one prefix follow each other; each row of the index names the
group that holds the token before its first (`parent`), so that a path can be put together without
opening a file.

What must always hold (letters refer to the invariants in the design):

- A file is complete or does not exist: written under a temporary name, synced, renamed, and only
  then entered in the index. What is not in the index is removed when the store is opened (Y).
- Nothing is believed: on reading, the header must name this very model, dtype, layout, page size
  and namespace, the ids must be the ones asked for, and each page's BLAKE3 must fit. Anything else
  is a miss; the group is removed, and counted (X, Y).
- Names are random and made here. Directory 0700, files 0600, symbolic links are not followed.
- K/V can be turned back into text: keep the directory as you would keep the prompts.

Slots of this tier are numbers in this process only: group `g` has `[g.base, g.base + n)`.

    file: magic | u16 version | u32 size | header (JSON) | ids int32[n] | digests 16 x pages | pages

Thread-safe, but meant for one mover thread; SQLite (WAL) holds the index. Imports no torch.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import json
import logging
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from blake3 import blake3

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray

log = logging.getLogger("agentkv.engine")

MAGIC = b"agentkv\x00"
VERSION = 1
DIGEST = 16
"""Bytes of BLAKE3 that are kept of a page (128 bits find damage; they are no signature)."""

HALF_LIFE = 6 * 3600.0
"""Seconds after which a hit of a group counts half."""


class DiskMiss(Exception):
    """A group cannot be used; the message says why. `bad`: it was damaged, not merely gone."""

    def __init__(self, why: str, *, bad: bool = True) -> None:
        super().__init__(why)
        self.bad = bad


@dataclass(frozen=True, slots=True)
class Layout:
    """What a page's bytes mean. Two stores share a group only if all of it is equal.

    `page_bytes`: of one page over all layers, K and V.
    """

    model: str
    """Fingerprint of weights and configuration. Ids are compared, so the tokenizer does not matter."""
    dtype: str
    page_size: int
    layers: int
    kv_heads: int
    head_dim: int
    page_bytes: int


@dataclass(slots=True)
class Group:
    """One file. `ids`: of its own tokens; `path` puts the whole prefix together."""

    row: int
    tag: str
    parent: int | None
    start: int
    ids: IntArray
    name: str
    size: int
    created: float
    used: float
    hits: float
    base: int
    live: int
    """Tokens that the tree still refers to."""
    children: int = 0
    opened: bool = False
    """Its header has been verified in this process."""

    @property
    def tokens(self) -> int:
        return len(self.ids)


def tag_of(namespace: Namespace) -> str:
    """A namespace as 32 hex characters: digests only, since salts may be secrets.

    Tagged parts are written with their lengths, so `("ab", "c")` and `("a", "bc")` differ.
    """
    hasher = blake3()

    def feed(value: object) -> None:
        if isinstance(value, tuple):
            hasher.update(f"t{len(value)}:".encode())
            for part in value:
                feed(part)
            return
        text = repr(value).encode("utf-8", "surrogatepass")
        hasher.update(f"{type(value).__name__}{len(text)}:".encode() + text)

    feed(namespace)
    return hasher.hexdigest()[:32]


class DiskStore:
    """The groups of one directory that fit one `Layout`.

    `limit`: bytes of all files together; least useful groups go first. `max_age`: seconds since the
    last use. Raises `InvalidRequest` when the directory cannot be used (not writable, or open in
    another process).
    """

    def __init__(
        self, directory: Path, layout: Layout, *, limit: int, max_age: float | None = None
    ) -> None:
        self.directory = directory.expanduser()
        self.layout = layout
        self.limit = limit
        self.max_age = max_age
        self.bad_groups = 0
        self.written_bytes = 0
        self.read_bytes = 0
        self._lock = threading.RLock()
        self._groups: dict[int, Group] = {}
        self._bases: list[int] = []
        self._by_base: dict[int, int] = {}
        self._next = 0
        self._bytes = 0
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.chmod(self.directory, 0o700)
            (self.directory / "groups").mkdir(exist_ok=True, mode=0o700)
            self._guard = open(self.directory / "lock", "w")  # noqa: SIM115  (held while open)
            os.chmod(self.directory / "lock", 0o600)
        except OSError as error:
            raise InvalidRequest(
                f"The disk cache directory {self.directory} cannot be used: {error}.",
                param="disk_cache",
            ) from error
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._guard.close()
            raise InvalidRequest(
                f"The disk cache {self.directory} is in use by another process; give each "
                "process a directory of its own.",
                param="disk_cache",
            ) from error
        try:
            self._db = self._open_index()
        except (OSError, sqlite3.Error) as error:
            self._guard.close()
            raise InvalidRequest(
                f"The index of the disk cache {self.directory} cannot be opened: {error}.",
                param="disk_cache",
            ) from error
        self._load()

    # -- reading the index

    @property
    def bytes_used(self) -> int:
        with self._lock:
            return self._bytes

    def groups(self, tag: str | None = None) -> list[Group]:
        """The groups of a namespace (or all), parents before children."""
        with self._lock:
            found = [g for g in self._groups.values() if tag is None or g.tag == tag]
        return sorted(found, key=lambda g: (g.start, g.row))

    def path(self, group: Group) -> IntArray:
        """Token ids of the whole prefix that ends with `group`."""
        with self._lock:
            parts = [group.ids]
            start, parent = group.start, group.parent
            while parent is not None:
                above = self._groups[parent]
                parts.append(above.ids[: start - above.start])
                start, parent = above.start, above.parent
        return np.concatenate(parts[::-1])

    # -- pages

    def write(
        self, namespace: Namespace, ids: IntArray, start: int, pages: Sequence[memoryview]
    ) -> IntArray:
        """Store tokens `[start, len(ids))` of a prefix; returns their slots here.

        `pages`: `page_bytes` each. Raises `OSError` (disk full and the like; nothing is left
        behind), or `DiskMiss` when what comes before `start` is not in the store.
        """
        tag = tag_of(namespace)
        parent = None
        if start:
            found = self._group_before(tag, ids, start)
            if found is None:
                raise DiskMiss("what comes before it is not on disk", bad=False)
            parent = found.row
        own = np.ascontiguousarray(ids[start:], dtype=np.int32)
        name = secrets.token_hex(16)
        size = self._write_file(name, tag, start, own, pages)
        now = time.time()
        with self._lock:
            row = self._db.execute(
                "INSERT INTO groups(tag, layout, parent, start, ids, name, size, created, used, "
                "hits) VALUES (?,?,?,?,?,?,?,?,?,0)",
                (tag, self._layout_key, parent, start, own.tobytes(), name, size, now, now),
            ).lastrowid
            self._db.commit()
            assert row is not None
            group = self._add(row, tag, parent, start, own, name, size, now, now, 0.0)
            self.written_bytes += size
        return np.arange(group.base, group.base + group.tokens, dtype=np.int32)

    def read(self, namespace: Namespace, ids: IntArray, slots: IntArray) -> Iterator[memoryview]:
        """The pages of `slots` (whole pages), in order. `ids`: the tokens they must stand for.

        Raises `DiskMiss` when any of it cannot be used; its group is removed then.
        """
        page = self.layout.page_size
        at = 0
        while at < len(slots):
            group = self._group_of(int(slots[at]))
            if group is None:
                raise DiskMiss("the group is gone", bad=False)
            first = int(slots[at]) - group.base
            count = min(len(slots) - at, group.tokens - first)
            breaks = np.flatnonzero(np.diff(slots[at : at + count]) != 1)
            run = int(breaks[0]) + 1 if len(breaks) else count
            if not np.array_equal(group.ids[first : first + run], ids[at : at + run]):
                self.remove(group, "its token ids are not the ones asked for")
                raise DiskMiss("the token ids are not the ones asked for")
            try:
                yield from self._read_group(group, tag_of(namespace), first // page, run // page)
            except (OSError, ValueError, struct.error) as error:
                gone = isinstance(error, FileNotFoundError)
                self.remove(group, str(error), bad=True)
                raise DiskMiss(str(error), bad=not gone) from error
            at += run
            with self._lock:
                now = time.time()
                group.hits = _decayed(group, now) + 1
                group.used = now

    # -- leaving

    def free(self, slots: IntArray) -> None:
        """The tree no longer refers to these slots; a group that it refers to nowhere is removed."""
        with self._lock:
            for slot in slots[:: self.layout.page_size].tolist():
                group = self._group_of(slot)
                if group is None:
                    continue
                group.live -= self.layout.page_size
                if group.live <= 0:
                    self.remove(group)

    def all_alive(self) -> None:
        """The tree has forgotten everything, and may ask for every group again."""
        with self._lock:
            for group in self._groups.values():
                group.live = group.tokens

    def victims(self) -> list[Group]:
        """Groups that should go, by age and by size: leaves first, least useful first.

        Usefulness: hits that fade with a half-life of six hours, then the time of the last use.
        """
        now = time.time()
        out: list[Group] = []
        with self._lock:
            size = self._bytes
            children = {g.row: g.children for g in self._groups.values()}
            leaves = [g for g in self._groups.values() if not g.children]
            if self.max_age is not None:
                out += [g for g in leaves if now - g.used > self.max_age]
                size -= sum(g.size for g in out)
            order = sorted(
                (g for g in leaves if g not in out), key=lambda g: (_decayed(g, now), g.used)
            )
            while size > self.limit and order:
                group = order.pop(0)
                out.append(group)
                size -= group.size
                if group.parent is not None:
                    children[group.parent] -= 1
                    if children[group.parent] == 0:
                        above = self._groups[group.parent]
                        keys = [(_decayed(g, now), g.used) for g in order]
                        order.insert(bisect.bisect(keys, (_decayed(above, now), above.used)), above)
        return out

    def remove(self, group: Group, why: str | None = None, *, bad: bool | None = None) -> None:
        """Take a group, and what can only be reached through it, out of index and directory."""
        with self._lock:
            if self._groups.get(group.row) is not group:
                return
            if bad or (bad is None and why is not None):
                self.bad_groups += 1
                log.warning("disk cache: a group is not usable and was removed: %s", why)
            for child in [g for g in self._groups.values() if g.parent == group.row]:
                self.remove(child)
            del self._groups[group.row]
            self._bases.remove(group.base)
            del self._by_base[group.base]
            self._bytes -= group.size
            if group.parent is not None and group.parent in self._groups:
                self._groups[group.parent].children -= 1
            with contextlib.suppress(OSError):
                self._file(group.name).unlink(missing_ok=True)
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("DELETE FROM groups WHERE row = ?", (group.row,))
                self._db.commit()

    def purge(self) -> int:
        """Remove everything. Returns the number of groups."""
        with self._lock:
            found = list(self._groups.values())
            for group in found:
                self.remove(group)
            return len(found)

    def close(self) -> None:
        """Write what is known of uses, and let go of the directory. Twice does nothing."""
        with self._lock:
            if self._guard.closed:
                return
            with contextlib.suppress(sqlite3.Error):
                self._db.executemany(
                    "UPDATE groups SET used = ?, hits = ? WHERE row = ?",
                    [(g.used, g.hits, g.row) for g in self._groups.values()],
                )
                self._db.commit()
                self._db.close()
            self._guard.close()

    # -- files

    def _file(self, name: str) -> Path:
        return self.directory / "groups" / f"{name}.kv"

    def _header(self, tag: str, start: int, tokens: int) -> dict[str, Any]:
        shape = self.layout
        return {
            "model": shape.model,
            "dtype": shape.dtype,
            "page_size": shape.page_size,
            "layers": shape.layers,
            "kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "page_bytes": shape.page_bytes,
            "namespace": tag,
            "start": start,
            "tokens": tokens,
        }

    def _write_file(
        self, name: str, tag: str, start: int, ids: IntArray, pages: Sequence[memoryview]
    ) -> int:
        header = json.dumps(self._header(tag, start, len(ids)), sort_keys=True).encode()
        digests = b"".join(blake3(p).digest(length=DIGEST) for p in pages)
        head = MAGIC + struct.pack("<HI", VERSION, len(header)) + header
        body = ids.tobytes() + digests
        temporary = self.directory / "groups" / f"{name}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        try:
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(head)
                file.write(body)
                file.write(blake3(head + body).digest(length=DIGEST))
                for one in pages:
                    file.write(one)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            os.rename(temporary, self._file(name))
            _sync(self.directory / "groups")
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return size

    def _read_group(self, group: Group, tag: str, first: int, count: int) -> Iterator[memoryview]:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(self._file(group.name), flags), "rb") as file:
            digests, offset = self._verify(file, group, tag)
            size = self.layout.page_bytes
            file.seek(offset + first * size)
            for index in range(first, first + count):
                data = file.read(size)
                if len(data) != size:
                    raise ValueError("the file is shorter than its header says")
                if blake3(data).digest(length=DIGEST) != digests[index]:
                    raise ValueError(f"page {index} does not have the checksum it was written with")
                self.read_bytes += size
                yield memoryview(data)

    def _verify(self, file: BinaryIO, group: Group, tag: str) -> tuple[list[bytes], int]:
        """Digests of the pages, and where the first one begins."""
        fixed = file.read(len(MAGIC) + 6)
        if fixed[: len(MAGIC)] != MAGIC:
            raise ValueError("this is no file of a disk cache")
        version, length = struct.unpack("<HI", fixed[len(MAGIC) :])
        if version != VERSION or length > 1 << 16:
            raise ValueError(f"format version {version}, this is {VERSION}")
        header = file.read(length)
        pages = group.tokens // self.layout.page_size
        body = file.read(4 * group.tokens + DIGEST * pages)
        if blake3(fixed + header + body).digest(length=DIGEST) != file.read(DIGEST):
            raise ValueError("the header does not have the checksum it was written with")
        if json.loads(header) != self._header(tag, group.start, group.tokens):
            raise ValueError("the header names another model, dtype, layout or namespace")
        if body[: 4 * group.tokens] != group.ids.tobytes():
            raise ValueError("the file's token ids are not the index's")
        marks = body[4 * group.tokens :]
        digests = [marks[i * DIGEST : (i + 1) * DIGEST] for i in range(pages)]
        return digests, len(fixed) + length + len(body) + DIGEST

    # -- index

    @property
    def _layout_key(self) -> str:
        return blake3(json.dumps(self._header("", 0, 0), sort_keys=True).encode()).hexdigest()[:32]

    def _open_index(self) -> sqlite3.Connection:
        path = self.directory / "index.sqlite"
        fresh = not path.exists()
        db = sqlite3.connect(path, check_same_thread=False, timeout=5)
        if fresh:
            os.chmod(path, 0o600)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute(
            "CREATE TABLE IF NOT EXISTS groups(row INTEGER PRIMARY KEY, tag TEXT NOT NULL, "
            "layout TEXT NOT NULL, parent INTEGER, start INTEGER NOT NULL, ids BLOB NOT NULL, "
            "name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, created REAL NOT NULL, "
            "used REAL NOT NULL, hits REAL NOT NULL)"
        )
        db.execute("CREATE INDEX IF NOT EXISTS by_layout ON groups(layout, start)")
        db.commit()
        return db

    def _load(self) -> None:
        """Rows of this layout become groups; files without a row, and rows without a parent, go."""
        rows = self._db.execute(
            "SELECT row, tag, parent, start, ids, name, size, created, used, hits FROM groups "
            "WHERE layout = ? ORDER BY start, row",
            (self._layout_key,),
        )
        now = time.time()
        lost: list[tuple[int]] = []
        for row, tag, parent, start, ids, name, size, created, used, hits in rows:
            if (parent is None) != (start == 0) or (
                parent is not None and parent not in self._groups
            ):
                lost.append((row,))
                continue
            own = np.frombuffer(ids, dtype=np.int32)
            # A clock that was set back must not make a group look as if it came from the future.
            self._add(row, tag, parent, start, own, name, size, created, min(used, now), hits)
        if lost:
            self._db.executemany("DELETE FROM groups WHERE row = ?", lost)
            self._db.commit()
        names = {name for (name,) in self._db.execute("SELECT name FROM groups")}
        for entry in os.scandir(self.directory / "groups"):
            if entry.name.removesuffix(".kv") not in names:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)

    def _add(
        self,
        row: int,
        tag: str,
        parent: int | None,
        start: int,
        ids: IntArray,
        name: str,
        size: int,
        created: float,
        used: float,
        hits: float,
    ) -> Group:
        base, self._next = self._next, self._next + len(ids)
        group = Group(row, tag, parent, start, ids, name, size, created, used, hits, base, len(ids))
        self._groups[row] = group
        self._bases.append(base)
        self._by_base[base] = row
        self._bytes += size
        if parent is not None:
            self._groups[parent].children += 1
        return group

    def _group_of(self, slot: int) -> Group | None:
        with self._lock:
            at = bisect.bisect_right(self._bases, slot) - 1
            if at < 0:
                return None
            group = self._groups[self._by_base[self._bases[at]]]
            return group if slot < group.base + group.tokens else None

    def _group_before(self, tag: str, ids: IntArray, start: int) -> Group | None:
        """The group that holds token `start - 1` of exactly this prefix."""
        with self._lock:
            for group in self._groups.values():
                end = group.start + group.tokens
                if group.tag != tag or not group.start < start <= end:
                    continue
                own = group.ids[: start - group.start]
                if not np.array_equal(own, ids[group.start : start]):
                    continue
                if np.array_equal(self.path(group)[:start], ids[:start]):
                    return group
        return None


def _decayed(group: Group, now: float) -> float:
    return float(group.hits * 0.5 ** (max(0.0, now - group.used) / HALF_LIFE))


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
