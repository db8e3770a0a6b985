"""DiskStore: K/V in files that outlive the process, and the index that says what is in them.

Each row of the index names the group that holds the token before its first (`parent`), so that a
path can be put together without opening a file. When the store is opened it reads the index and the
names of the files, and opens none of them.

What must always hold, beside what every store promises (letters refer to the invariants in the
design):

- A file is complete or does not exist: written under a temporary name, synced, renamed, and only
  then entered in the index. What is not in the index is removed when the store is opened (Y).
- Names are random and made here. Directory 0700, files 0600, symbolic links are not followed.
- K/V can be turned back into text: keep the directory as you would keep the prompts.

One thread writes, reads and removes files; any thread may ask what there is: that never waits for
the disk. SQLite (WAL) holds the index. Imports no torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.groups import Groups
from agentkv.engine.kv.page_file import read_head, write_head
from agentkv.engine.kv.store import Found, Group, Later, Layout, StoreMiss, expect, tag_of
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray

log = logging.getLogger("agentkv.engine")

SAVE_SECONDS = 60.0
"""Uses are written to the index this often, when something is written anyway, and at the end."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS groups(row INTEGER PRIMARY KEY, tag TEXT NOT NULL, "
    "layout TEXT NOT NULL, parent INTEGER, start INTEGER NOT NULL, ids BLOB NOT NULL, "
    "name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, created REAL NOT NULL, "
    "used REAL NOT NULL, hits REAL NOT NULL)",
    "CREATE INDEX IF NOT EXISTS by_layout ON groups(layout, start)",
    "CREATE TABLE IF NOT EXISTS layouts(layout TEXT PRIMARY KEY, label TEXT, facts TEXT NOT NULL)",
)


class DiskStore:
    """The groups of one directory that fit one `Layout`.

    `limit`: bytes of all files together; least useful groups go first. `max_age`: seconds since the
    last use. `label`: the model's name, for people. Raises `InvalidRequest` when the directory
    cannot be used (not writable, or open in another process).
    """

    shared = False
    away = False
    group_bytes = 32 << 20

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        *,
        limit: int,
        max_age: float | None = None,
        label: str | None = None,
    ) -> None:
        self.directory = directory.expanduser()
        self.layout = layout
        self.limit = limit
        self.max_age = max_age
        self.bad_groups = 0
        self.written_bytes = 0
        self.read_bytes = 0
        self.later: Later = lambda work: work()
        self._lock = threading.RLock()
        self._db_lock = threading.Lock()
        self._groups = Groups(layout.page_size)
        self._used: set[int] = set()
        self._saved = time.monotonic()
        self._guard = hold_directory(self.directory)
        try:
            self._db = open_index(self.directory)
            self._db.execute(
                "INSERT INTO layouts VALUES (?, ?, ?) ON CONFLICT(layout) DO UPDATE "
                "SET label = coalesce(excluded.label, label)",
                (layout.key, label, json.dumps(layout.facts("", 0, 0), sort_keys=True)),
            )
            self._db.commit()
            self._load()
        except (OSError, sqlite3.Error) as error:
            self._guard.close()
            raise InvalidRequest(
                f"The index of the disk cache {self.directory} cannot be opened: {error}.",
                param="disk_cache",
            ) from error

    # -- reading the index

    @property
    def bytes_used(self) -> int:
        with self._lock:
            return self._groups.bytes

    def groups(self, tag: str | None = None) -> list[Group]:
        with self._lock:
            return self._groups.all(tag)

    def path(self, group: Group) -> IntArray:
        with self._lock:
            return self._groups.path(group)

    def look(self, namespace: Namespace, ids: IntArray) -> None:
        """Nothing to learn: nobody else writes to the directory."""

    def cover(self, namespace: Namespace, ids: IntArray) -> list[Found]:
        with self._lock:
            return self._groups.cover(tag_of(namespace), ids)

    # -- pages

    def write(
        self, namespace: Namespace, ids: IntArray, start: int, pages: Sequence[memoryview]
    ) -> IntArray:
        return self.put(tag_of(namespace), ids, start, pages)

    def put(self, tag: str, ids: IntArray, start: int, pages: Sequence[memoryview]) -> IntArray:
        """`write`, for a namespace of which only the tag is known."""
        with self._lock:
            known = self._groups.cover(tag, ids)
            covered = known[-1].start + len(known[-1].slots) if known else 0
            if covered < start:
                raise StoreMiss("what comes before it is not on disk", bad=False)
            there = [f.slots[max(0, start - f.start) :] for f in known]
            parent = self._groups.before(tag, ids, covered) if covered else None
        if covered == len(ids):
            return np.concatenate(there)
        own = np.ascontiguousarray(ids[covered:], dtype=np.int32)
        pages = pages[(covered - start) // self.layout.page_size :]
        name = secrets.token_hex(16)
        size = self._write_file(name, tag, covered, own, pages)
        above = None if parent is None else parent.row
        now = time.time()
        try:
            with self._db_lock:
                row = self._db.execute(
                    "INSERT INTO groups(tag, layout, parent, start, ids, name, size, created, "
                    "used, hits) VALUES (?,?,?,?,?,?,?,?,?,0)",
                    (tag, self.layout.key, above, covered, own.tobytes(), name, size, now, now),
                ).lastrowid
                self._db.commit()
        except sqlite3.Error as error:
            self._file(name).unlink(missing_ok=True)
            raise OSError(f"the index of the disk cache cannot be written: {error}") from error
        assert row is not None
        with self._lock:
            if parent is not None and parent not in self._groups:
                self._erase([(row, name)])
                raise StoreMiss("what comes before it left the disk meanwhile", bad=False)
            group = self._groups.add(
                Group(row, tag, above, covered, own, name, size, now, now, 0.0)
            )
            self.written_bytes += size
            slots = np.arange(group.base, group.base + group.tokens, dtype=np.int32)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._save_uses()
        return np.concatenate([*there, slots])

    def read(self, namespace: Namespace, ids: IntArray, slots: IntArray) -> Iterator[memoryview]:
        page, tag = self.layout.page_size, tag_of(namespace)
        at = 0
        while at < len(slots):
            with self._lock:
                piece = self._groups.piece(slots, at)
            if piece is None:
                raise StoreMiss("the group is gone", bad=False)
            group, first, run = piece
            if not np.array_equal(group.ids[first : first + run], ids[at : at + run]):
                self.remove(group, "its token ids are not the ones asked for")
                raise StoreMiss("the token ids are not the ones asked for")
            try:
                yield from self._read_group(group, tag, first // page, run // page)
            except (OSError, ValueError) as error:
                gone = isinstance(error, FileNotFoundError)
                self.remove(group, str(error), bad=True)
                raise StoreMiss(str(error), bad=not gone) from error
            at += run
            with self._lock:
                self._groups.touch(group, time.time())
                self._used.add(group.row)

    # -- leaving

    def free(self, slots: IntArray) -> None:
        """A group that the tree refers to nowhere is removed."""
        with self._lock:
            for slot in slots[:: self.layout.page_size].tolist():
                group = self._groups.of_slot(slot)
                if group is None:
                    continue
                group.live -= self.layout.page_size
                if group.live <= 0:
                    self.remove(group)

    def all_alive(self) -> None:
        with self._lock:
            for group in self._groups.all():
                group.live = group.tokens

    def victims(self) -> list[Group]:
        with self._lock:
            return self._groups.victims(self.limit, self.max_age, time.time())

    def remove(self, group: Group, why: str | None = None, *, bad: bool | None = None) -> None:
        with self._lock:
            if group not in self._groups:
                return
            if bad or (bad is None and why is not None):
                self.bad_groups += 1
                log.warning("disk cache: a group is not usable and was removed: %s", why)
            gone = [(g.row, g.name) for g in self._groups.take(group)]
        self._erase(gone)

    def purge(self) -> int:
        """Remove everything. Returns the number of groups."""
        with self._lock:
            roots = [g for g in self._groups.all() if g.parent is None]
            count = len(self._groups)
            for group in roots:
                self.remove(group)
            return count

    def probe(self) -> tuple[float, float]:
        """By a file that was just written; real loads correct what a page cache flatters. The best of
        three: one that was held up, as by files that are still being written, would have the tier
        declined before it was ever used."""
        path, data = self.directory / "probe", bytes(8 << 20)
        spent = float("inf")
        try:
            path.write_bytes(data)
            for _ in range(3):
                began = time.perf_counter()
                path.read_bytes()
                spent = min(spent, max(1e-6, time.perf_counter() - began))
        except OSError:
            return 1e8, 0.005
        finally:
            path.unlink(missing_ok=True)
        # Checksums and copies into the pool come on top of reading.
        return len(data) / (spent + len(data) / 1e9), 0.002

    def counters(self) -> dict[str, float]:
        return {
            "capacity_bytes": self.limit,
            "bytes": self.bytes_used,
            "written_bytes_total": self.written_bytes,
            "read_bytes_total": self.read_bytes,
            "bad_groups_total": self.bad_groups,
        }

    def close(self) -> None:
        """Write what is known of uses, and let go of the directory. Twice does nothing."""
        if self._guard.closed:
            return
        self._save_uses()
        with self._db_lock, contextlib.suppress(sqlite3.Error):
            self._db.close()
        self._guard.close()

    # -- inside

    def _erase(self, gone: list[tuple[int, str]]) -> None:
        """Files and rows of groups that are out of the index in memory already."""

        def work() -> None:
            for _, name in gone:
                with contextlib.suppress(OSError):
                    self._file(name).unlink(missing_ok=True)
            with self._db_lock, contextlib.suppress(sqlite3.Error):
                self._db.executemany(
                    "DELETE FROM groups WHERE row = ?", [(row,) for row, _ in gone]
                )
                self._db.commit()

        self.later(work)

    def _save_uses(self) -> None:
        self._saved = time.monotonic()
        with self._lock:
            found = [g for row in self._used if (g := self._groups.get(row)) is not None]
            rows = [(g.used, g.hits, g.row) for g in found]
            self._used.clear()
        with self._db_lock, contextlib.suppress(sqlite3.Error):
            self._db.executemany("UPDATE groups SET used = ?, hits = ? WHERE row = ?", rows)
            self._db.commit()

    def _file(self, name: str) -> Path:
        return self.directory / "groups" / f"{name}.kv"

    def _write_file(
        self, name: str, tag: str, start: int, ids: IntArray, pages: Sequence[memoryview]
    ) -> int:
        head = write_head(self.layout.facts(tag, start, len(ids)), ids, pages)
        return write_file(self.directory, name, [head, *pages])

    def _read_group(self, group: Group, tag: str, first: int, count: int) -> Iterator[memoryview]:
        with open_file(self._file(group.name)) as file:
            head = read_head(file.read)
            expect(head, self.layout, tag, group)
            size = self.layout.page_bytes
            file.seek(head.offset + first * size)
            for index in range(first, first + count):
                data = file.read(size)
                head.check(index, data)
                self.read_bytes += size
                yield memoryview(data)

    def _load(self) -> None:
        """Rows of this layout become groups; files without a row, and rows without a parent, go."""
        rows = self._db.execute(
            "SELECT row, tag, parent, start, ids, name, size, created, used, hits FROM groups "
            "WHERE layout = ? ORDER BY start, row",
            (self.layout.key,),
        )
        now = time.time()
        lost: list[tuple[int]] = []
        for row, tag, parent, start, ids, name, size, created, used, hits in rows:
            if (parent is None) != (start == 0) or (
                parent is not None and self._groups.get(parent) is None
            ):
                lost.append((row,))
                continue
            own = np.frombuffer(ids, dtype=np.int32)
            # A clock that was set back must not make a group look as if it came from the future.
            used = min(used, now)
            self._groups.add(Group(row, tag, parent, start, own, name, size, created, used, hits))
        if lost:
            self._db.executemany("DELETE FROM groups WHERE row = ?", lost)
            self._db.commit()
        names = {name for (name,) in self._db.execute("SELECT name FROM groups")}
        for entry in os.scandir(self.directory / "groups"):
            if entry.name.removesuffix(".kv") not in names:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def hold_directory(directory: Path) -> BinaryIO:
    """Make a cache directory, or take one, for this process alone, until what is returned is
    closed. Raises `InvalidRequest`."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(directory, 0o700)
        (directory / "groups").mkdir(exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        guard = os.fdopen(os.open(directory / "lock", flags, 0o600), "r+b")
    except OSError as error:
        raise InvalidRequest(
            f"The disk cache directory {directory} cannot be used: {error}.", param="disk_cache"
        ) from error
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        who = guard.read(32).decode(errors="replace").strip()
        guard.close()
        raise InvalidRequest(
            f"The disk cache {directory} is in use by another process"
            f"{f' ({who})' if who else ''}; give each process a directory of its own.",
            param="disk_cache",
        ) from error
    guard.truncate(0)
    guard.write(f"process {os.getpid()}".encode())
    guard.flush()
    return guard


def open_index(directory: Path) -> sqlite3.Connection:
    """The index of a cache directory, to be written. Raises `sqlite3.Error` or `OSError`."""
    path = directory / "index.sqlite"
    fresh = not path.exists()
    db = sqlite3.connect(path, check_same_thread=False, timeout=5)
    if fresh:
        os.chmod(path, 0o600)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    for statement in SCHEMA:
        db.execute(statement)
    db.commit()
    return db


def open_file(path: Path) -> BinaryIO:
    """A group's file, to be read. Symbolic links are not followed."""
    return os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb")


def write_file(directory: Path, name: str, parts: Sequence[bytes | memoryview]) -> int:
    """Write a group's file whole, or not at all; returns its size. Raises `OSError`."""
    folder = directory / "groups"
    temporary = folder / f"{name}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.rename(temporary, folder / f"{name}.kv")
        _sync(folder)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return size


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
