"""Results of earlier runs, so that files that did not change are not read again.

One file a project and settings. An entry is good when the file is the same (size and time of
change, else content) and, unless the file stands alone, when every other file of the run is the
same too: a prompt may be put together from several modules.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from time import time_ns

import msgspec
from platformdirs import user_cache_dir

from agentkv.lint.result import FileResult
from agentkv.lint.source import Source, SourceError

_KEPT = 32
"""Cache files that stay; the oldest go."""
_RACY = 2_000_000_000
"""Nanoseconds: a file changed this shortly before it was hashed may have changed again since,
within the same tick of the file system's clock."""


class Entry(msgspec.Struct, array_like=True):
    size: int
    changed: int
    seen: int
    """When it was hashed, in nanoseconds, as `changed`."""
    result: FileResult
    together: str
    """A hash of all files of the run in which it was analysed."""
    outside: dict[str, tuple[int, int]] = {}
    """Size and time of change of files beyond the run that were read for it."""


class _Stored(msgspec.Struct, array_like=True):
    key: str
    entries: dict[str, Entry]


class Cache:
    """Results by absolute path."""

    def __init__(self, file: Path | None, key: str) -> None:
        self.file, self.key = file, key
        self.entries: dict[str, Entry] = {}
        if file is not None:
            self._load(file)

    def _load(self, file: Path) -> None:
        try:
            stored = msgspec.msgpack.decode(file.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return
        if stored.key == self.key:
            self.entries = stored.entries

    def known(self, paths: Iterable[str]) -> dict[str, FileResult]:
        """Results that still hold, for the files of this run."""
        same: dict[str, Entry] = {}
        digests: dict[str, str] = {}
        whole = True
        for path in paths:
            entry = self.entries.get(path)
            if entry is not None and self._same(path, entry):
                same[path] = entry
                digests[path] = entry.result.digest
            else:
                whole = False
        now = together(digests) if whole else ""
        return {
            path: e.result
            for path, e in same.items()
            if e.result.alone or (whole and e.together == now and _unchanged(e.outside))
        }

    def _same(self, path: str, entry: Entry) -> bool:
        try:
            stat = os.stat(path)
        except OSError:
            return False
        if stat.st_size != entry.size:
            return False
        if stat.st_mtime_ns == entry.changed and stat.st_mtime_ns < entry.seen - _RACY:
            return True
        try:
            source = Source.read(Path(path))
        except SourceError:
            return False
        if source.digest != entry.result.digest:
            return False
        entry.changed, entry.seen = stat.st_mtime_ns, time_ns()
        return True

    def store(self, results: Mapping[str, FileResult], fresh: Iterable[str], *, began: int) -> None:
        """Keep the results of a run; `fresh` are the paths that were analysed in it, none of them
        read before `began` (nanoseconds): a file that changed since then is hashed again."""
        if self.file is None:
            return
        whole = together({path: r.digest for path, r in results.items()})
        for path in fresh:
            if not all(map(_unicode, (path, *results[path].outside))):
                continue
            try:
                stat = os.stat(path)
            except OSError:
                self.entries.pop(path, None)
                continue
            result = results[path]
            outside = {p: mark for p in result.outside if (mark := _mark(p)) is not None}
            self.entries[path] = Entry(
                stat.st_size, stat.st_mtime_ns, began, result, whole, outside
            )
        self._write(self.file)

    def _write(self, file: Path) -> None:
        data = msgspec.msgpack.encode(_Stored(self.key, self.entries))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}.tmp")
            part.touch(mode=0o600)
            part.write_bytes(data)
            part.replace(file)
            rest = sorted(file.parent.glob("*.lint"), key=lambda f: f.stat().st_mtime, reverse=True)
            for old in rest[_KEPT:]:
                old.unlink(missing_ok=True)
        except OSError:
            return  # a cache that cannot be written costs time, nothing else


def open_cache(root: Path, settings: str, *, folder: str | None = None, on: bool = True) -> Cache:
    """The cache of a project under some settings. With `on=False` it knows and keeps nothing."""
    key = f"{version()} {settings}"
    if not on:
        return Cache(None, key)
    name = blake2b(
        f"{root} {settings}".encode("utf-8", "surrogateescape"), digest_size=12
    ).hexdigest()
    where = Path(folder) if folder else Path(user_cache_dir("agentkv"), "lint")
    return Cache(where / f"{name}.lint", key)


def together(digests: Mapping[str, str]) -> str:
    """A hash of all files of a run: their names and contents."""
    whole = blake2b(digest_size=16)
    for path in sorted(digests):
        whole.update(f"{path}\0{digests[path]}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


@cache
def version() -> str:
    """The version of this program and the state of its files: rules change between releases too."""
    from importlib.metadata import version as installed

    state = blake2b(digest_size=8)
    for file in sorted(Path(__file__).parent.rglob("*")):
        if file.suffix in (".py", ".toml", ".json", ".txt"):
            stat = file.stat()
            state.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return f"{installed('agentkv')}+{state.hexdigest()}"


def _unicode(path: str) -> bool:
    """Whether a name can be stored; names of files may be any bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mark(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _unchanged(outside: Mapping[str, tuple[int, int]]) -> bool:
    return all(_mark(path) == mark for path, mark in outside.items())
