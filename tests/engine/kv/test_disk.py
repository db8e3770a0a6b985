"""The disk tier's store: whatever happens to process, disk or files, a page is right or a miss."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.disk import DiskStore
from agentkv.engine.kv.store import Layout, StoreMiss, tag_of

PAGE, BYTES = 16, 4096
LAYOUT = Layout("model", "float32", PAGE, 2, 1, 4, BYTES)
SPACE = (("model", "m"), ("salt", None))


def content(ids: np.ndarray, start: int) -> list[memoryview]:
    """Pages that say which prefix they are of."""
    out = []
    for at in range(start, len(ids), PAGE):
        seed = int(ids[: at + PAGE].astype(np.int64).sum()) * 7919 + at
        out.append(memoryview(np.random.default_rng(seed).bytes(BYTES)))
    return out


def prefix(seed: int, pages: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, pages * PAGE).astype(np.int32)


def store(folder: Path, **options: Any) -> DiskStore:
    return DiskStore(folder, LAYOUT, **{"limit": 1 << 30, **options})


def read_all(one: DiskStore, namespace: Any = SPACE) -> int:
    """Read every group and compare it with what was written; how many tokens were right."""
    right = 0
    for group in one.groups(tag_of(namespace)):
        path = one.path(group)
        slots = np.arange(group.base, group.base + group.tokens, dtype=np.int32)
        found = list(one.read(namespace, group.ids, slots))
        assert [bytes(f) for f in found] == [bytes(p) for p in content(path, group.start)]
        right += group.tokens
    return right


def test_what_was_written_is_read_after_a_restart(tmp_path: Path) -> None:
    ids = prefix(1, 6)
    one = store(tmp_path)
    first = one.write(SPACE, ids[: 4 * PAGE], 0, content(ids[: 4 * PAGE], 0))
    second = one.write(SPACE, ids, 4 * PAGE, content(ids, 4 * PAGE))
    assert len(first) == 4 * PAGE and len(second) == 2 * PAGE
    assert not set(first.tolist()) & set(second.tolist())
    one.close()
    again = store(tmp_path)
    assert read_all(again) == 6 * PAGE
    assert [len(again.path(g)) for g in again.groups()] == [4 * PAGE, 6 * PAGE]
    part = again.groups()[0]
    slots = np.arange(part.base + PAGE, part.base + 3 * PAGE, dtype=np.int32)
    found = [bytes(p) for p in again.read(SPACE, ids[PAGE : 3 * PAGE], slots)]
    assert found == [bytes(p) for p in content(ids[: 4 * PAGE], 0)[1:3]]
    again.close()


def test_other_ids_in_the_same_slots_are_refused(tmp_path: Path) -> None:
    ids = prefix(2, 2)
    one = store(tmp_path)
    slots = one.write(SPACE, ids, 0, content(ids, 0))
    with pytest.raises(StoreMiss, match="token ids"):
        list(one.read(SPACE, ids + 1, slots))
    one.close()


def test_a_namespace_cannot_read_another_one_s_group(tmp_path: Path) -> None:
    one = store(tmp_path)
    ids = prefix(3, 2)
    slots = one.write(SPACE, ids, 0, content(ids, 0))
    with pytest.raises(StoreMiss, match="namespace"):
        list(one.read((("model", "m"), ("salt", "x")), ids, slots))
    one.close()


def test_tags_do_not_run_together() -> None:
    pairs = [
        ((("a", "org_1"), ("b", "2345")), (("a", "org_12345"), ("b", ""))),
        (("ab", "c"), ("a", "bc")),
        (("1",), (1,)),
        ((None,), ("None",)),
        ((("a",), "b"), (("a", "b"),)),
    ]
    for a, b in pairs:
        assert tag_of(a) != tag_of(b), (a, b)
    assert len(tag_of(SPACE)) == 32 and tag_of(SPACE) == tag_of(SPACE)


def test_what_hangs_in_the_air_is_not_written(tmp_path: Path) -> None:
    one = store(tmp_path)
    ids = prefix(4, 4)
    with pytest.raises(StoreMiss, match="before it"):
        one.write(SPACE, ids, 2 * PAGE, content(ids, 2 * PAGE))
    assert list((tmp_path / "groups").iterdir()) == []
    one.close()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = store(tmp_path)
    ids = prefix(5, 2)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agentkv.engine.kv.disk.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        one.write(SPACE, ids, 0, content(ids, 0))
    assert list((tmp_path / "groups").iterdir()) == [] and one.groups() == []
    monkeypatch.undo()
    one.write(SPACE, ids, 0, content(ids, 0))
    assert read_all(one) == 2 * PAGE
    one.close()


def test_another_layout_sees_nothing_and_spoils_nothing(tmp_path: Path) -> None:
    ids = prefix(6, 2)
    one = store(tmp_path)
    one.write(SPACE, ids, 0, content(ids, 0))
    one.close()
    for other in (
        replace(LAYOUT, model="other"),
        replace(LAYOUT, dtype="bfloat16"),
        replace(LAYOUT, page_size=1),
        replace(LAYOUT, head_dim=8),
    ):
        stranger = DiskStore(tmp_path, other, limit=1 << 30)
        assert stranger.groups() == []
        stranger.close()
    one = store(tmp_path)
    assert read_all(one) == 2 * PAGE
    one.close()


def test_a_clock_that_was_set_back_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = prefix(7, 2)
    one = store(tmp_path)
    one.write(SPACE, ids, 0, content(ids, 0))
    one.close()
    now = time.time()
    monkeypatch.setattr("agentkv.engine.kv.disk.time.time", lambda: now - 10 * 365 * 86400)
    one = store(tmp_path, max_age=3600)
    assert one.victims() == []
    assert read_all(one) == 2 * PAGE
    one.close()


def test_old_and_little_used_groups_leave_first_and_children_before_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = store(tmp_path)
    a, b = prefix(8, 4), prefix(9, 2)
    one.write(SPACE, a[: 2 * PAGE], 0, content(a[: 2 * PAGE], 0))
    one.write(SPACE, a, 2 * PAGE, content(a, 2 * PAGE))
    used = one.write(SPACE, b, 0, content(b, 0))
    list(one.read(SPACE, b, used))
    one.limit = one.bytes_used - 1
    assert [g.start for g in one.victims()] == [2 * PAGE]
    one.limit = 1
    order = one.victims()
    assert [g.start for g in order[:2]] == [2 * PAGE, 0] and len(order) == 3
    now = time.time()
    monkeypatch.setattr("agentkv.engine.kv.disk.time.time", lambda: now + 7200)
    one.limit, one.max_age = 1 << 30, 3600
    assert [g.start for g in one.victims()][-1] == 0 and len(one.victims()) == 3  # children first
    one.close()


def test_removing_a_parent_removes_what_hangs_from_it(tmp_path: Path) -> None:
    one = store(tmp_path)
    ids = prefix(10, 4)
    one.write(SPACE, ids[: 2 * PAGE], 0, content(ids[: 2 * PAGE], 0))
    one.write(SPACE, ids, 2 * PAGE, content(ids, 2 * PAGE))
    one.remove(one.groups()[0])
    assert one.groups() == [] and one.bytes_used == 0
    assert list((tmp_path / "groups").iterdir()) == []
    one.close()


def test_links_are_not_followed(tmp_path: Path) -> None:
    one = store(tmp_path)
    ids = prefix(11, 2)
    slots = one.write(SPACE, ids, 0, content(ids, 0))
    (file,) = (tmp_path / "groups").iterdir()
    target = tmp_path / "elsewhere"
    file.rename(target)
    file.symlink_to(target)
    with pytest.raises(StoreMiss):
        list(one.read(SPACE, ids, slots))
    one.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InvalidRequest, match="cannot be used"):
        store(tmp_path / "cache")


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.engine.kv.test_disk import PAGE, SPACE, content, prefix, store
one = store(Path({folder!r}))
print("ready", flush=True)
seed = {seed}
while True:
    ids = prefix(seed, 4)
    one.write(SPACE, ids[:2 * PAGE], 0, content(ids[:2 * PAGE], 0))
    one.write(SPACE, ids, 2 * PAGE, content(ids, 2 * PAGE))
    seed += 1
"""


def test_kill_nine_at_any_moment_leaves_only_whole_groups(tmp_path: Path) -> None:
    """Twenty times: a process writes, is killed, and the next one finds no half of anything."""
    root = str(Path(__file__).parents[3])
    rng = np.random.default_rng(0)
    total = 0
    for attempt in range(20):
        code = WRITER.format(root=root, folder=str(tmp_path), seed=1000 * attempt)
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        time.sleep(float(rng.uniform(0.002, 0.06)))
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        one = store(tmp_path)
        total = read_all(one)
        assert one.bad_groups == 0
        names = {p.name for p in (tmp_path / "groups").iterdir()}
        assert names == {f"{g.name}.kv" for g in one.groups()}
        one.close()
    assert total > 0


def test_a_probe_that_was_held_up_once_is_no_slow_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all that an earlier process left would be declined until somebody measures again."""
    read, calls = Path.read_bytes, 0

    def held_up(self: Path) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            time.sleep(0.8)
        return read(self)

    with contextlib.closing(store(tmp_path)) as one:
        monkeypatch.setattr(Path, "read_bytes", held_up)
        bandwidth, _ = one.probe()
    assert calls > 1 and bandwidth > 8 * (8 << 20)
    assert not (tmp_path / "probe").exists()
