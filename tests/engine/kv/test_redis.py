"""The store on a Redis or Valkey server: what is there is right or a miss, whoever wrote it, and a
server that goes away is a miss, too."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.redis import PREFIX, RedisStore, shown
from agentkv.engine.kv.store import StoreMiss, tag_of
from tests.engine.kv.test_disk import BYTES, LAYOUT, PAGE, SPACE, content, prefix

redis = pytest.importorskip("redis")
PROGRAM = next((p for n in ("valkey-server", "redis-server") if (p := shutil.which(n))), None)
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no valkey-server or redis-server here (Debian: apt-get install redis)"
)


@dataclass
class Server:
    """A real server on a free port, which keeps nothing on disk."""

    folder: Path
    options: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    opened: list[RedisStore] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        assert PROGRAM is not None
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        settings = ("--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", self.folder)
        self.process = subprocess.Popen(
            [PROGRAM, "--port", str(self.port), *map(str, settings), *self.options],
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end and self.process.poll() is None
                time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def client(self) -> Any:
        return redis.Redis(port=self.port)

    def store(self, **options: Any) -> RedisStore:
        layout = options.pop("layout", LAYOUT)
        one = RedisStore(self.url, layout, **{"limit": 1 << 30, **options})
        self.opened.append(one)
        return one


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(*options: str) -> Server:
        server = Server(tmp_path, options)
        server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        for one in server.opened:
            one.close()
        server.stop()


@pytest.fixture
def server(make_server: Callable[..., Server]) -> Server:
    return make_server()


def found(one: RedisStore, ids: np.ndarray, namespace: Any = SPACE) -> int:
    """Tokens of a prefix that the store has, each page read and compared."""
    one.look(namespace, ids)
    right = 0
    for part in one.cover(namespace, ids):
        at = len(part.ids) - len(part.slots)
        assert at == part.start and np.array_equal(part.ids, ids[: len(part.ids)])
        pages = [bytes(p) for p in one.read(namespace, part.ids[at:], part.slots)]
        assert pages == [bytes(p) for p in content(part.ids, at)]
        right += len(part.slots)
    return right


def put(one: RedisStore, ids: np.ndarray, start: int = 0, namespace: Any = SPACE) -> np.ndarray:
    return one.write(namespace, ids, start, content(ids, start))


def test_what_one_writes_another_finds_without_a_restart(server: Server) -> None:
    one, other = server.store(), server.store()
    ids = prefix(1, 6)
    assert found(other, ids) == 0
    assert len(put(one, ids[: 4 * PAGE])) == 4 * PAGE
    assert len(put(one, ids, 4 * PAGE)) == 2 * PAGE
    assert found(other, ids) == 6 * PAGE
    longer = np.concatenate([ids, prefix(2, 1)])
    put(other, longer, 6 * PAGE)  # behind what the other one wrote
    assert found(one, longer) == 7 * PAGE
    parts = np.concatenate([ids[: 3 * PAGE], prefix(3, 2)])  # parts in the middle of a group
    assert found(one, parts) == 3 * PAGE
    put(one, parts, 3 * PAGE)
    assert found(other, parts) == 5 * PAGE and found(other, longer) == 7 * PAGE


def test_the_same_prefix_is_stored_once(server: Server) -> None:
    one, other = server.store(), server.store()
    ids = prefix(4, 4)
    put(one, ids)
    slots = put(other, ids)
    assert len(slots) == 4 * PAGE
    assert len(server.client().keys(f"{PREFIX}g:*")) == 1
    assert list(map(bytes, other.read(SPACE, ids, slots))) == list(map(bytes, content(ids, 0)))


def test_what_one_removes_is_a_miss_for_the_other(server: Server) -> None:
    one, other = server.store(), server.store()
    ids = prefix(5, 4)
    put(one, ids[: 2 * PAGE])
    put(one, ids, 2 * PAGE)
    assert found(other, ids) == 4 * PAGE
    slots = other.cover(SPACE, ids)[0].slots
    one.remove(one.groups()[0])
    assert server.client().keys(f"{PREFIX}[gn]:*") == []
    assert int(server.client().get(f"{PREFIX}bytes")) == 0
    with pytest.raises(StoreMiss, match="gone"):
        list(other.read(SPACE, ids[: 2 * PAGE], slots))
    assert found(other, ids) == 0 and other.bad_groups == 0
    put(other, ids)
    assert found(one, ids) == 4 * PAGE


def test_salts_and_layouts_are_kept_apart(server: Server) -> None:
    one = server.store()
    ids = prefix(6, 2)
    org, other_org = (("salt", "org_1"), ("key", "2345")), (("salt", "org_12345"), ("key", ""))
    put(one, ids, namespace=org)
    fresh = server.store()
    assert found(fresh, ids, other_org) == found(fresh, ids, SPACE) == 0
    assert found(fresh, ids, org) == 2 * PAGE
    for other in (
        replace(LAYOUT, model="other"),
        replace(LAYOUT, dtype="bfloat16"),
        replace(LAYOUT, head_dim=8),
        replace(LAYOUT, scales="x"),
        replace(LAYOUT, page_size=1, page_bytes=BYTES // PAGE),
    ):
        assert found(server.store(layout=other), ids, org) == 0
    assert found(fresh, ids, org) == 2 * PAGE and fresh.bad_groups == 0


def test_a_value_of_another_namespace_under_our_name_is_refused(server: Server) -> None:
    one = server.store()
    ids = prefix(7, 2)
    slots = put(one, ids)
    other = (("model", "m"), ("salt", "x"))
    put(one, ids, namespace=other)
    mine, theirs = (one.groups(tag_of(n))[0].name for n in (SPACE, other))
    client = server.client()
    client.set(f"{PREFIX}g:{mine}", client.get(f"{PREFIX}g:{theirs}"))
    with pytest.raises(StoreMiss, match="namespace"):
        list(one.read(SPACE, ids, slots))
    assert found(one, ids) == 0 and found(one, ids, other) == 2 * PAGE


@pytest.mark.parametrize("place", ["magic", "version", "header", "ids", "digests", "first", "last"])
@pytest.mark.parametrize("known", [True, False])
def test_a_damaged_value_is_a_miss_and_goes(server: Server, place: str, known: bool) -> None:
    one = server.store()
    ids = prefix(8, 3)
    slots = put(one, ids)
    client = server.client()
    (key,) = client.keys(f"{PREFIX}g:*")
    data = bytearray(client.get(key))
    header = 14 + int.from_bytes(data[10:14], "little")
    at = {
        "magic": 2, "version": 8, "header": 40, "ids": header + 5,
        "digests": header + 4 * 3 * PAGE + 3, "first": len(data) - 3 * BYTES + 7, "last": len(data) - 1,
    }[place]  # fmt: skip
    data[at] ^= 1
    client.set(key, bytes(data))
    reader = one if known else server.store()
    if known:
        with pytest.raises(StoreMiss):
            list(reader.read(SPACE, ids, slots))
    else:
        reader.look(SPACE, ids)
        for part in reader.cover(SPACE, ids):  # the head was right: the pages are not
            with pytest.raises(StoreMiss, match="checksum"):
                list(reader.read(SPACE, part.ids, part.slots))
    assert reader.bad_groups == 1 and client.keys(f"{PREFIX}[gn]:*") == []
    assert found(server.store(), ids) == 0
    put(reader, ids)
    assert found(reader, ids) == 3 * PAGE


@pytest.mark.parametrize("keep", [5, 300, -1])
def test_a_value_that_was_cut_is_a_miss(server: Server, keep: int) -> None:
    one = server.store()
    ids = prefix(9, 3)
    slots = put(one, ids)
    client = server.client()
    (key,) = client.keys(f"{PREFIX}g:*")
    client.set(key, client.get(key)[:keep])
    with pytest.raises(StoreMiss):
        list(one.read(SPACE, ids, slots))
    assert one.bad_groups == 1


def test_longer_heads_than_one_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv.engine.kv.redis.HEAD_BYTES", 64)
    monkeypatch.setattr("agentkv.engine.kv.redis.READ_BYTES", 2 * BYTES)
    monkeypatch.setattr("agentkv.engine.kv.redis.LOOK_KEYS", 3)
    one = server.store()
    ids = prefix(10, 8)
    put(one, ids)
    assert found(server.store(), ids) == 8 * PAGE


def test_stopped_and_started_in_the_middle(server: Server) -> None:
    one = server.store()
    ids = prefix(11, 4)
    slots = put(one, ids)
    reading = one.read(SPACE, ids, slots)
    next(reading)
    server.stop()
    with pytest.raises(StoreMiss, match="cannot be reached") as lost:
        list(one.read(SPACE, ids, slots))
    assert not lost.value.bad and one.lost == 1 and one.away
    began = time.monotonic()
    for _ in range(100):  # nobody asks for a while, and nobody waits
        with pytest.raises(StoreMiss):
            list(one.read(SPACE, ids, slots))
        with pytest.raises(StoreMiss):
            put(one, prefix(12, 1))
        one.look(SPACE, ids)
    assert time.monotonic() - began < 5 and one.lost == 1
    server.start()
    one._until = 0.0
    assert found(one, ids) == 0  # it came back empty
    put(one, ids)
    assert found(one, ids) == found(server.store(), ids) == 4 * PAGE
    assert one.bad_groups == 0 and not one.away


def test_a_restart_between_two_calls_is_not_noticed(server: Server) -> None:
    one = server.store()
    put(one, prefix(13, 1))
    server.stop()
    server.start()
    put(one, prefix(14, 1))
    assert one.lost == 0 and found(one, prefix(14, 1)) == PAGE


def test_a_server_that_hangs_is_left_alone_for_longer_each_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkv.engine.kv.redis.TIMEOUT", 0.1)
    one = server.store()
    ids = prefix(15, 1)
    slots = put(one, ids)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    pauses = []
    for _ in range(3):
        one._until = 0.0
        with pytest.raises(StoreMiss):
            list(one.read(SPACE, ids, slots))
        pauses.append(one._pause)
    assert pauses == [0.5, 1.0, 2.0] and one.lost == 3
    os.kill(server.process.pid, signal.SIGCONT)
    one._until = 0.0
    assert found(one, ids) == PAGE and one._pause == 0


def test_a_server_that_is_not_there_at_first_may_come(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    server.stop()
    one = server.store()
    assert one.lost == 1 and one.away and one.counters()["reachable"] == 0
    server.start()
    try:
        one._until = 0.0
        put(one, prefix(16, 1))
        assert found(one, prefix(16, 1)) == PAGE
    finally:
        one.close()
        server.stop()


def test_the_limit_is_kept_and_children_leave_before_parents(server: Server) -> None:
    one = server.store()
    a, b = prefix(17, 4), prefix(18, 2)
    put(one, a[: 2 * PAGE])
    put(one, a, 2 * PAGE)
    size = one.groups()[0].size
    put(one, b)
    assert found(one, a) == 4 * PAGE  # used after b
    one.limit = 3 * size + size // 2
    put(one, prefix(19, 2))
    fresh = server.store()
    assert found(fresh, b) == 0 and found(fresh, a) == 4 * PAGE
    fresh.limit = 2 * size + size // 2
    put(fresh, prefix(20, 1))
    assert [found(fresh, p) for p in (a, prefix(20, 1))] != [4 * PAGE, 0]
    client = server.client()
    names = client.zrange(f"{PREFIX}use", 0, -1)
    total = sum(client.strlen(f"{PREFIX}g:{n.decode()}") for n in names)
    assert total == int(client.get(f"{PREFIX}bytes")) <= fresh.limit
    assert len(client.keys(f"{PREFIX}g:*")) == len(client.keys(f"{PREFIX}n:*")) == len(names)


def test_what_was_not_used_for_long_goes(server: Server) -> None:
    one = server.store(max_age=3600)
    old, new = prefix(21, 1), prefix(22, 1)
    put(one, old)
    client = server.client()
    (name,) = client.zrange(f"{PREFIX}use", 0, -1)
    assert 3600 <= client.ttl(f"{PREFIX}g:{name.decode()}") <= 3661
    client.zincrby(f"{PREFIX}use", -4000, name)
    put(one, new)
    assert found(one, old) == 0 and found(one, new) == PAGE


def test_a_full_server_refuses_and_is_not_lost(make_server: Callable[..., Server]) -> None:
    server = make_server("--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
    one = server.store()
    with pytest.raises(OSError, match="refuses"):
        for seed in range(200):
            put(one, prefix(100 + seed, 16))
    assert one.lost == 0 and not one.away
    assert found(one, prefix(100, 16)) == 16 * PAGE


def test_keys_that_the_server_evicts_are_misses(make_server: Callable[..., Server]) -> None:
    server = make_server("--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
    one = server.store()
    prompts = [prefix(100 + seed, 16) for seed in range(100)]
    for ids in prompts:
        put(one, ids)
    fresh = server.store()
    right = [found(fresh, ids) for ids in prompts]
    assert 0 < sum(n > 0 for n in right) < 100
    assert fresh.bad_groups == 0


def test_passwords_are_not_shown(
    make_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server("--requirepass", "hush-hush")
    with pytest.raises(InvalidRequest, match="refuses") as wrong:
        RedisStore(f"redis://:wr0ng@127.0.0.1:{server.port}/0", LAYOUT, limit=1 << 20)
    assert "wr0ng" not in str(wrong.value)
    url = f"redis://:hush-hush@127.0.0.1:{server.port}/0"
    one = RedisStore(url, LAYOUT, limit=1 << 20)
    put(one, prefix(23, 1))
    server.stop()
    one.look(SPACE, prefix(23, 1))
    one.close()
    assert "cannot be reached" in caplog.text
    assert "hush" not in caplog.text and "wr0ng" not in caplog.text
    assert shown("rediss://me:pw@[::1]:6380/2?password=x") == "rediss://[::1]:6380/2"
    with pytest.raises(InvalidRequest, match="redis://localhost") as bad:
        RedisStore("https://me:secret@host/0", LAYOUT, limit=1)
    assert "secret" not in str(bad.value)
