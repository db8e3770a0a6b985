"""Groups of a disk cache in one file, to be taken elsewhere: a tar of `index.json` and the groups.

Whoever has the file can read the prompts: it is made with mode 0600. On the way in, nothing is
believed: each header, id and page is verified, the index must say the same, names are made anew.
Imports no torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.disk import DiskStore
from agentkv.engine.kv.inspect import CacheDirectory, CacheUnavailable, Entry, chosen
from agentkv.engine.kv.page_file import Head, read_head
from agentkv.engine.kv.store import Layout
from agentkv.engine.types import IntArray

SCHEMA = 1
MOST_INDEX = 256 << 20
_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Moved:
    """What an export or an import did. `damaged`: names of groups that were left out."""

    groups: int
    bytes: int
    known: int = 0
    """Of an import: groups that were there already."""
    damaged: tuple[str, ...] = ()


def export(
    directory: Path,
    file: Path,
    *,
    model: str | None = None,
    tag: str | None = None,
    names: tuple[str, ...] = (),
) -> Moved:
    """Write groups, and all that they hang from, to `file`: all, or those of a model, of a namespace,
    or of the given names. What is damaged, or hangs from that, is left out. Raises `InvalidRequest`
    when `file` exists or nothing was chosen, `CacheUnavailable`."""
    file = file.expanduser()
    if file.exists():
        raise InvalidRequest(f"{file} exists already; name a new file.", param="file")
    with CacheDirectory(directory) as there:
        entries = chosen(there, model=model, tag=tag)
        if names:
            wanted = {there.find(name).row for name in names}
            entries = [e for e in entries if e.row in wanted]
        if not entries:
            raise InvalidRequest(f"There is nothing in {directory} to export.")
        rows = {e.row: e for e in there.entries()}
        kept: dict[int, Entry] = {}
        for entry in entries:
            walk: Entry | None = entry
            while walk is not None and walk.row not in kept:
                kept[walk.row] = walk
                walk = None if walk.parent is None else rows.get(walk.parent)
        sound: dict[int, Entry] = {}
        damaged: list[str] = []
        for entry in sorted(kept.values(), key=lambda e: (e.start, e.row)):
            try:
                if entry.parent is not None and entry.parent not in sound:
                    raise ValueError("what comes before it is damaged")
                there.check(entry)
            except (OSError, ValueError, CacheUnavailable):
                damaged.append(entry.name)
            else:
                sound[entry.row] = entry
        shapes = there.shapes()
        layouts = {e.layout for e in sound.values()}
        index = {
            "schema": SCHEMA,
            "layouts": {
                key: {"label": shapes[key].label, "facts": shapes[key].facts}
                for key in sorted(layouts)
            },
            "groups": [
                {
                    "name": e.name,
                    "layout": e.layout,
                    "namespace": e.tag,
                    "parent": None if e.parent is None else sound[e.parent].name,
                    "start": e.start,
                    "tokens": e.tokens,
                    "size": e.size,
                }
                for e in sound.values()
            ],
        }
        _write(file, index, [(e.name, there.file(e.name)) for e in sound.values()])
    total = sum(e.size for e in sound.values())
    return Moved(len(sound), total, damaged=tuple(damaged))


def take_in(directory: Path, file: Path, *, new_layout: bool = False) -> Moved:
    """Put the groups of `file` into a cache directory, which is made if it is not there.

    Layouts (model, dtype, page size and so on) that a directory with groups has none of are refused,
    unless `new_layout`: they would take room, and no server that uses it could read them. Raises
    `InvalidRequest` for a file that is no export, is damaged, or has another layout (nothing has been
    taken in then), and `CacheUnavailable` when a server has the directory.
    """
    file, directory = file.expanduser(), directory.expanduser()
    try:
        with tarfile.open(file, "r:") as tar:
            index, members = _index(tar, file)
            layouts = {key: _layout(key, facts, file) for key, facts in index["layouts"].items()}
            if not new_layout:
                _refuse_others(directory, layouts, index, file)
            paths: dict[str, IntArray] = {}
            # Twice through the file: nothing is written before all of it has been found sound.
            for group in index["groups"]:
                head = _verify(tar, members, group, layouts, paths, file)
                before = paths[group["parent"]][: head.facts["start"]] if group["parent"] else _NONE
                paths[group["name"]] = np.concatenate([before, head.ids])
            count = known = size = 0
            for key, layout in layouts.items():
                label = index["layouts"][key].get("label")
                with _store(directory, layout, label) as store:
                    for group in index["groups"]:
                        if group["layout"] != key:
                            continue
                        had = store.written_bytes
                        ids = paths[group["name"]]
                        pages = _pages(tar, members, group)
                        store.put(group["namespace"], ids, group["start"], pages)
                        count += store.written_bytes > had
                        known += store.written_bytes == had
                        size += store.written_bytes - had
    except (OSError, tarfile.TarError) as error:
        raise InvalidRequest(f"{file} cannot be imported: {error}.", param="file") from error
    return Moved(count, size, known)


# -- writing


def _write(file: Path, index: dict[str, Any], groups: list[tuple[str, Path]]) -> None:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with (
            os.fdopen(os.open(temporary, flags, 0o600), "wb") as raw,
            tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            data = json.dumps(index).encode()
            _add(tar, "index.json", len(data), io.BytesIO(data))
            for name, path in groups:
                with path.open("rb") as source:
                    _add(tar, f"groups/{name}.kv", os.fstat(source.fileno()).st_size, source)
        os.rename(temporary, file)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error}.", param="file") from error
    finally:
        temporary.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, name: str, size: int, source: Any) -> None:
    member = tarfile.TarInfo(name)  # no owner, no times: nothing of this machine
    member.size, member.mode = size, 0o600
    tar.addfile(member, source)


# -- reading


def _index(tar: tarfile.TarFile, file: Path) -> tuple[dict[str, Any], dict[str, tarfile.TarInfo]]:
    members = {m.name: m for m in tar.getmembers() if m.isreg()}
    first = members.get("index.json")
    try:
        if first is None or first.size > MOST_INDEX:
            raise ValueError
        source = tar.extractfile(first)
        assert source is not None
        index = json.loads(source.read())
        if index["schema"] != SCHEMA:
            raise ValueError
        seen: set[str] = set()
        index["groups"].sort(key=lambda g: g["start"])
        for group in index["groups"]:
            name, parent = group["name"], group["parent"]
            if (
                not _NAME.fullmatch(name)
                or name in seen
                or not _NAME.fullmatch(group["namespace"])
                or group["layout"] not in index["layouts"]
                or (parent is None) != (group["start"] == 0)
                or (parent is not None and parent not in seen)
                or f"groups/{name}.kv" not in members
            ):
                raise ValueError
            seen.add(name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRequest(
            f"{file} is no export of a disk cache, or of another version.", param="file"
        ) from error
    return index, members


def _layout(key: str, entry: dict[str, Any], file: Path) -> Layout:
    try:
        layout = Layout(**entry["facts"])
    except (TypeError, KeyError) as error:
        raise InvalidRequest(f"{file}: a layout that cannot be read.", param="file") from error
    if layout.key != key:
        raise InvalidRequest(f"{file}: a layout is not the one it says it is.", param="file")
    return layout


def _refuse_others(
    directory: Path, layouts: dict[str, Layout], index: dict[str, Any], file: Path
) -> None:
    if not (directory / "index.sqlite").exists():
        return
    with CacheDirectory(directory) as there:
        have = there.shapes()
    strange = [key for key in layouts if key not in have]
    if have and strange:
        one = layouts[strange[0]]
        name = index["layouts"][strange[0]].get("label") or one.model[:16]
        here = "; ".join(
            f"{s.model}, {s.facts.get('dtype', 'unknown')}, page {s.facts.get('page_size', '?')}"
            for s in have.values()
        )
        raise InvalidRequest(
            f"{file} has K/V of another layout ({name}, {one.dtype}, page {one.page_size}) than "
            f"{directory} ({here}): no server that uses it could read that. Import it into a "
            "directory of its own, or with --new-layout.",
            param="file",
        )


def _verify(
    tar: tarfile.TarFile,
    members: dict[str, tarfile.TarInfo],
    group: dict[str, Any],
    layouts: dict[str, Layout],
    paths: dict[str, IntArray],
    file: Path,
) -> Head:
    source = tar.extractfile(members[f"groups/{group['name']}.kv"])
    assert source is not None
    layout = layouts[group["layout"]]
    try:
        head = read_head(source.read)
        start, tokens = group["start"], group["tokens"]
        if head.facts != layout.facts(group["namespace"], start, tokens):
            raise ValueError("its header is not what the index says")
        if group["parent"] and not 0 < start <= len(paths[group["parent"]]):
            raise ValueError("it does not follow the group it hangs from")
        for page in range(head.pages):
            head.check(page, source.read(layout.page_bytes))
    except ValueError as error:
        raise InvalidRequest(
            f"{file} is damaged, and nothing was imported: group {group['name']}: {error}.",
            param="file",
        ) from error
    return head


def _pages(
    tar: tarfile.TarFile, members: dict[str, tarfile.TarInfo], group: dict[str, Any]
) -> list[memoryview]:
    source = tar.extractfile(members[f"groups/{group['name']}.kv"])
    assert source is not None
    head = read_head(source.read)
    size = int(head.facts["page_bytes"])
    pages = []
    for number in range(head.pages):
        data = source.read(size)
        head.check(number, data)
        pages.append(memoryview(data))
    return pages


@contextlib.contextmanager
def _store(directory: Path, layout: Layout, label: str | None) -> Iterator[DiskStore]:
    try:
        store = DiskStore(directory, layout, limit=1 << 62, label=label)
    except InvalidRequest as error:
        raise CacheUnavailable(str(error)) from error
    try:
        yield store
    finally:
        store.close()


_NONE = np.empty(0, dtype=np.int32)
