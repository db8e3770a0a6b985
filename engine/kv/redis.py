"""RedisStore: K/V in a Redis or Valkey server, for engines that share prefixes.

What one engine writes, another one finds when it looks for a prefix: no restart, no message between
them. What one removes is a miss for the others.

    agentkv:1:g:NAME     a group: the same bytes as a file of the disk cache
    agentkv:1:n:DIGEST   its name, by a digest of layout, namespace and all tokens up to the end of its
                         first page: one round trip asks for every page of a prompt
    agentkv:1:use        sorted set: when each group was last used, by the server's clock
    agentkv:1:size       hash: bytes of each group, and its digest
    agentkv:1:bytes      bytes of all groups

The size limit is this module's own account, kept by scripts in the server: whoever writes evicts
what was used longest ago until it fits. The server may also evict or expire keys by itself: what is
gone is a miss, and leaves the account when its turn comes.

A server that is lost, slow or restarted is a miss and a count, never an error: every answer is waited
for `TIMEOUT` seconds, then nobody asks for a while, longer each time. Only the mover's thread waits.
The digests are no secret: whoever can read the server can read the prompts. Imports no torch.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from blake3 import blake3

from agentkv.engine.errors import InvalidRequest
from agentkv.engine.kv.groups import Groups
from agentkv.engine.kv.page_file import Head, read_head, write_head
from agentkv.engine.kv.store import Found, Group, Later, Layout, StoreMiss, expect, tag_of
from agentkv.engine.kv.tree import Namespace
from agentkv.engine.types import IntArray

log = logging.getLogger("agentkv.engine")

PREFIX = "agentkv:1:"

CONNECT_TIMEOUT, TIMEOUT = 0.5, 1.0
"""Seconds for a connection, and for an answer."""

FIRST_PAUSE, MOST_PAUSE = 0.5, 30.0
"""Seconds that nobody asks after the server was lost; doubled each time."""

HEAD_BYTES = 16 << 10
"""Read of a group at first: most heads are shorter."""

READ_BYTES = 4 << 20
LOOK_KEYS = 4096

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}

Errors = tuple[type[Exception], ...]

_COMMON = """
local P = 'agentkv:1:'
local t = redis.call('TIME')
local now = tonumber(t[1]) + tonumber(t[2]) / 1e6
local function drop(name)
  local kept = redis.call('HGET', P .. 'size', name)
  redis.call('DEL', P .. 'g:' .. name)
  redis.call('ZREM', P .. 'use', name)
  if not kept then return 0 end
  redis.call('HDEL', P .. 'size', name)
  local at = string.find(kept, ' ')
  redis.call('DECRBY', P .. 'bytes', string.sub(kept, 1, at - 1))
  local key = P .. 'n:' .. string.sub(kept, at + 1)
  if redis.call('GET', key) == name then redis.call('DEL', key) end
  return 1
end
local function trim(limit, age)
  if age > 0 then
    for _, name in ipairs(redis.call('ZRANGEBYSCORE', P .. 'use', '-inf', now - age, 'LIMIT', 0, 256)) do
      drop(name)
    end
  end
  while tonumber(redis.call('GET', P .. 'bytes') or '0') > limit do
    local last = redis.call('ZRANGE', P .. 'use', 0, 0)
    if #last == 0 then redis.call('SET', P .. 'bytes', 0) break end
    drop(last[1])
  end
end
local function stamp(name, start, age)
  -- What hangs from another group is a little older than that: it leaves before it.
  redis.call('ZADD', P .. 'use', string.format('%.6f', now - math.min(tonumber(start), 1e6) * 1e-6), name)
  if age > 0 then redis.call('EXPIRE', P .. 'g:' .. name, math.ceil(age) + 60) end
end
"""

_PUT = (
    _COMMON
    + """
local name, digest, start, limit, age = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local key = P .. 'n:' .. digest
local there = redis.call('GET', key)
if there and redis.call('EXISTS', P .. 'g:' .. there) == 1 then return there end
if there then drop(there) end
redis.call('SET', P .. 'g:' .. name, ARGV[6])
redis.call('SET', key, name)
if age > 0 then redis.call('EXPIRE', key, math.ceil(age) + 60) end
redis.call('HSET', P .. 'size', name, #ARGV[6] .. ' ' .. digest)
redis.call('INCRBY', P .. 'bytes', #ARGV[6])
stamp(name, start, age)
trim(limit, age)
return name
"""
)

_USE = (
    _COMMON
    + """
local limit, age = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local kept = redis.call('HGET', P .. 'size', ARGV[i])
  if kept and redis.call('EXISTS', P .. 'g:' .. ARGV[i]) == 1 then
    stamp(ARGV[i], ARGV[i + 1], age)
    if age > 0 then
      redis.call('EXPIRE', P .. 'n:' .. string.sub(kept, string.find(kept, ' ') + 1), math.ceil(age) + 60)
    end
  end
end
trim(limit, age)
return 1
"""
)

_DROP = (
    _COMMON
    + """
local count = 0
for i = 1, #ARGV do count = count + drop(ARGV[i]) end
return count
"""
)


class RedisStore:
    """The groups of a server that fit one `Layout`.

    `url`: `redis://[user:password@]host:port/db`, `rediss://` with TLS, or `unix://path`. `limit`:
    bytes of all groups of all layouts together. `max_age`: seconds since the last use. Raises
    `InvalidRequest` when the URL cannot be used, redis-py is missing, or the server refuses this user;
    a server that is not there is none of that: it may come.
    """

    shared = True
    group_bytes = 4 << 20

    def __init__(
        self, url: str, layout: Layout, *, limit: int, max_age: float | None = None
    ) -> None:
        self.layout = layout
        self.limit = limit
        self.max_age = max_age
        self.shown = shown(url)
        self.bad_groups = self.lost = 0
        self.written_bytes = self.read_bytes = 0
        self.later: Later = lambda work: work()
        self._lock = threading.RLock()
        self._groups = Groups(layout.page_size)
        self._names: dict[str, Group] = {}
        self._rows = 0
        self._there = 0
        """Bytes of all groups in the server, when it was last asked."""
        self._pause = 0.0
        self._until = 0.0
        self._client, self._gone, self._refused = _connect(url)
        self._put, self._use, self._drop = (
            self._client.register_script(text) for text in (_PUT, _USE, _DROP)
        )
        try:
            self._ask(self._client.ping)
        except StoreMiss:
            pass
        except OSError as error:
            self._client.close()
            raise InvalidRequest(
                f"The store at {self.shown} cannot be used: {error}.", param="remote_cache"
            ) from error

    @property
    def away(self) -> bool:
        return time.monotonic() < self._until

    # -- what is known

    def groups(self, tag: str | None = None) -> list[Group]:
        with self._lock:
            return self._groups.all(tag)

    def path(self, group: Group) -> IntArray:
        with self._lock:
            return self._groups.path(group)

    def cover(self, namespace: Namespace, ids: IntArray) -> list[Found]:
        with self._lock:
            return self._groups.cover(tag_of(namespace), ids)

    def look(self, namespace: Namespace, ids: IntArray) -> None:
        with contextlib.suppress(StoreMiss, OSError):
            self._look(tag_of(namespace), ids)

    # -- pages

    def write(
        self, namespace: Namespace, ids: IntArray, start: int, pages: Sequence[memoryview]
    ) -> IntArray:
        tag, page = tag_of(namespace), self.layout.page_size
        # Twice: another engine may write the same prefix at the same moment; then its group is ours.
        for _ in range(2):
            self._look(tag, ids)
            with self._lock:
                known = self._groups.cover(tag, ids)
                covered = known[-1].start + len(known[-1].slots) if known else 0
                if covered < start:
                    raise StoreMiss("what comes before it is not in the store", bad=False)
                parent = self._groups.before(tag, ids, covered) if covered else None
            if covered < len(ids):
                own = np.ascontiguousarray(ids[covered:], dtype=np.int32)
                rest = pages[(covered - start) // page :]
                head = write_head(self.layout.facts(tag, covered, len(own)), own, rest)
                data = b"".join([head, *rest])
                name = secrets.token_hex(16)
                (digest,) = self._digests(tag, ids, [covered])
                age = self.max_age or 0
                arguments = [name, digest, covered, self.limit, age, data]
                kept = self._ask(self._put, args=arguments)
                if kept.decode() != name:
                    continue
                self.written_bytes += len(data)
                with self._lock:
                    self._add(tag, parent, covered, own, name, len(data))
                    known = self._groups.cover(tag, ids)
            return np.concatenate([f.slots[max(0, start - f.start) :] for f in known])
        raise StoreMiss("others write the same prefix", bad=False)

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
            except ValueError as error:
                self.remove(group, str(error))
                raise StoreMiss(str(error)) from error
            except OSError as error:
                raise StoreMiss(str(error), bad=False) from error
            at += run
            self._touch(group)

    # -- leaving

    def free(self, slots: IntArray) -> None:
        """Forgotten here, not there: others may use it."""
        with self._lock:
            for slot in slots[:: self.layout.page_size].tolist():
                group = self._groups.of_slot(slot)
                if group is not None:
                    group.live -= self.layout.page_size
                    if group.live <= 0:
                        self._forget(group)

    def all_alive(self) -> None:
        with self._lock:
            for group in self._groups.all():
                group.live = group.tokens

    def victims(self) -> list[Group]:
        """None: whoever writes evicts in the server."""
        return []

    def remove(self, group: Group, why: str | None = None, *, bad: bool | None = None) -> None:
        if bad or (bad is None and why is not None):
            self.bad_groups += 1
            log.warning("remote cache: a group is not usable and was removed: %s", why)
        with self._lock:
            names = self._forget(group)
        if names:
            self.later(lambda: self._drop_names(names))

    def probe(self) -> tuple[float, float]:
        """Bytes a second and seconds before the first byte, by one megabyte there and back."""
        key, data = f"{PREFIX}probe:{secrets.token_hex(8)}", bytes(1 << 20)
        try:
            self._ask(self._client.set, key, data, ex=10)
            fixed = spent = float("inf")
            for _ in range(3):  # the best: nothing else may have been in the way
                began = time.perf_counter()
                self._ask(self._client.ping)
                middle = time.perf_counter()
                self._ask(self._client.get, key)
                fixed = min(fixed, middle - began)
                spent = min(spent, time.perf_counter() - middle)
            self._ask(self._client.delete, key)
        except (StoreMiss, OSError):
            return 1e8, 0.005
        # Checksums and copies into the pool come on top of reading.
        return len(data) / (max(spent, 1e-6) + len(data) / 1e9), 4 * fixed + 0.001

    def counters(self) -> dict[str, float]:
        return {
            "capacity_bytes": self.limit,
            "bytes": self._there,
            "written_bytes_total": self.written_bytes,
            "read_bytes_total": self.read_bytes,
            "bad_groups_total": self.bad_groups,
            "lost_total": self.lost,
            "reachable": float(not self.away),
        }

    def close(self) -> None:
        with contextlib.suppress(*self._gone):
            self._client.close()

    # -- inside

    def _ask(self, command: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Ask the server. Raises `StoreMiss` when it cannot be reached, and `OSError` when it refuses
        (no memory left, no such user)."""
        if self.away:
            raise StoreMiss("the store cannot be reached", bad=False)
        try:
            out = command(*arguments, **options)
        except self._refused as error:
            raise OSError(f"the store refuses: {error}") from error
        except self._gone as error:
            self.lost += 1
            self._pause = min(MOST_PAUSE, max(FIRST_PAUSE, 2 * self._pause))
            self._until = time.monotonic() + self._pause
            log.warning(
                "remote cache: %s cannot be reached (%s); next try in %.1f s",
                self.shown,
                error,
                self._pause,
            )
            raise StoreMiss("the store cannot be reached", bad=False) from error
        self._pause = 0.0
        return out

    def _look(self, tag: str, ids: IntArray) -> None:
        page = self.layout.page_size
        starts = list(range(0, len(ids) - len(ids) % page, page))
        digests = self._digests(tag, ids, starts)
        names: list[str | None] = []
        for at in range(0, len(digests), LOOK_KEYS):
            keys = [f"{PREFIX}n:{d}" for d in digests[at : at + LOOK_KEYS]]
            *found, total = self._ask(self._client.mget, [*keys, f"{PREFIX}bytes"])
            self._there = int(total or 0)
            names += [None if name is None else name.decode() for name in found]
        there = [(s, n) for s, n in zip(starts, names, strict=True) if n is not None]
        with self._lock:
            named = {n for _, n in there}
            # What another one removed, or wrote anew under another name.
            for group, _ in reversed(self._groups.chain(tag, ids)):
                if group.name not in named:
                    self._forget(group)
            fresh = [(s, n) for s, n in there if n not in self._names]
        if not fresh:
            return
        pipe = self._client.pipeline(transaction=False)
        for _, name in fresh:
            pipe.getrange(f"{PREFIX}g:{name}", 0, HEAD_BYTES - 1)
        for (start, name), first in zip(fresh, self._ask(pipe.execute), strict=True):
            if first:
                self._enter(tag, ids, start, name, first)

    def _enter(self, tag: str, ids: IntArray, start: int, name: str, first: bytes) -> None:
        try:
            head = self._head(name, first)
        except ValueError as error:
            self.bad_groups += 1
            log.warning("remote cache: a group is not usable and was removed: %s", error)
            self._drop_names([name])
            return
        if head.facts != self.layout.facts(tag, start, len(head.ids)):
            return  # not ours to judge: another layout's, or another format's
        with self._lock:
            parent = self._groups.before(tag, ids, start) if start else None
            if start == 0 or parent is not None:
                self._add(tag, parent, start, head.ids, name, head.size)

    def _add(
        self, tag: str, parent: Group | None, start: int, ids: IntArray, name: str, size: int
    ) -> None:
        now = time.time()
        self._rows += 1
        above = None if parent is None else parent.row
        group = Group(self._rows, tag, above, start, ids, name, size, now, now, 0.0)
        self._names[name] = self._groups.add(group)

    def _forget(self, group: Group) -> list[str]:
        names = [g.name for g in self._groups.take(group)]
        for name in names:
            del self._names[name]
        return names

    def _drop_names(self, names: list[str]) -> None:
        with contextlib.suppress(StoreMiss, OSError):
            self._ask(self._drop, args=names)

    def _touch(self, group: Group) -> None:
        """It and what it hangs from were used now."""
        arguments: list[Any] = [self.limit, self.max_age or 0]
        with self._lock:
            self._groups.touch(group, time.time())
            above: Group | None = group
            while above is not None:
                arguments += [above.name, above.start]
                above = None if above.parent is None else self._groups.get(above.parent)
        with contextlib.suppress(StoreMiss, OSError):
            self._ask(self._use, args=arguments)

    def _read_group(self, group: Group, tag: str, first: int, count: int) -> Iterator[memoryview]:
        key, size = f"{PREFIX}g:{group.name}", self.layout.page_bytes
        start = self._ask(self._client.getrange, key, 0, HEAD_BYTES - 1)
        if not start:
            with self._lock:
                self._forget(group)
            raise StoreMiss("the group is gone", bad=False)
        head = self._head(group.name, start)
        expect(head, self.layout, tag, group)
        at_once = max(1, READ_BYTES // size)
        for at in range(first, first + count, at_once):
            many = min(at_once, first + count - at)
            begin = head.offset + at * size
            last = begin + many * size - 1
            data = memoryview(self._ask(self._client.getrange, key, begin, last))
            for index in range(many):
                one = data[index * size : (index + 1) * size]
                head.check(at + index, one)
                self.read_bytes += size
                yield one

    def _head(self, name: str, first: bytes) -> Head:
        """The head of a group of which the first bytes are here already."""
        have, at = bytearray(first), 0

        def read(n: int) -> bytes:
            nonlocal at
            if at + n > len(have) and len(have) >= HEAD_BYTES:
                key, end = f"{PREFIX}g:{name}", at + n - 1
                have.extend(self._ask(self._client.getrange, key, len(have), end))
            out = bytes(have[at : at + n])
            at += n
            return out

        return read_head(read)

    def _digests(self, tag: str, ids: IntArray, starts: Sequence[int]) -> list[str]:
        """For each start: 32 hex characters for the prefix up to the end of the page there."""
        page = self.layout.page_size
        data = np.ascontiguousarray(ids, dtype="<i4").data.cast("B")
        hasher = blake3(f"{self.layout.key}{tag}".encode())
        out, at = [], 0
        for start in starts:
            end = 4 * (start + page)
            hasher.update(data[at:end])
            at = end
            out.append(hasher.hexdigest(length=16))
        return out


def shown(url: str) -> str:
    """A URL as it may be printed: without user, password and options."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(a URL that cannot be read)"
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _connect(url: str) -> tuple[Any, Errors, Errors]:
    """A client, and the exceptions that mean lost and refused. Connects to nothing yet."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            "remote_cache needs redis-py: pip install 'agentkv[redis]'.", param="remote_cache"
        ) from error
    scheme, colon, rest = url.partition("://")
    errors = redis.exceptions
    try:
        client = redis.Redis.from_url(
            f"{SCHEMES.get(scheme, scheme)}{colon}{rest}",
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_timeout=TIMEOUT,
            # Once more, at once, on a connection that has ended: the server was restarted.
            retry=Retry(NoBackoff(), 1, supported_errors=(errors.ConnectionError,)),
        )
    except ValueError as error:
        raise InvalidRequest(
            f"remote_cache must be a URL such as redis://localhost:6379/0, got {shown(url)}.",
            param="remote_cache",
        ) from error
    refused = (errors.AuthenticationError, errors.AuthorizationError, errors.ResponseError)
    return client, (errors.ConnectionError, errors.TimeoutError, OSError), refused
