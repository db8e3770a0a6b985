"""Engines that share prefixes through a server: the same answers, whatever becomes of the server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentkv.engine import Engine
from agentkv.engine.errors import InvalidRequest
from tests.engine.kv.test_redis import PROGRAM, Server, make_server, server  # noqa: F401  (fixtures)
from tests.engine.test_tiers import GREEDY, POOL, answer, cold, prompt  # noqa: F401  (fixture)

MakeEngine = Callable[..., Engine]
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no valkey-server or redis-server here (Debian: apt-get install redis)"
)


def options(server: Server, **more: Any) -> dict[str, Any]:  # noqa: F811
    return {
        "pool_tokens": POOL, "page_size": 16, "host_cache": "1MiB", "host_write": "through",
        "host_write_hits": 1, "remote_cache": server.url, "load_policy": "always", **more,
    }  # fmt: skip


def share(engine: Engine, ids: list[int]) -> None:
    """Compute a prompt, use it once more, and wait until the engine has written it."""
    before = engine.stats()["tiers"]["disk"]["stored_tokens_total"]
    for _ in range(2):
        engine.generate(ids, GREEDY)
    end = time.monotonic() + 10
    while engine.stats()["tiers"]["disk"]["stored_tokens_total"] < before + len(ids) // 16 * 16:
        assert time.monotonic() < end
        time.sleep(0.01)


def settled(engine: Engine) -> None:
    assert engine._core.lower is not None and engine._core.lower.tiers is not None
    assert not engine._core.lower.tiers.transfers and not engine._core.lower.tiers._asking
    engine.check()


def test_two_replicas_share_without_a_restart(
    make_engine: MakeEngine,
    cold: Callable[..., Any],  # noqa: F811
    server: Server,  # noqa: F811
) -> None:
    one, other = make_engine(**options(server)), make_engine(**options(server))
    ids = prompt(1, 120)
    assert other.generate(prompt(2, 60), GREEDY).cache.cached_tokens == 0
    share(one, ids)
    out = other.generate([*ids, 7], GREEDY)
    assert out.cache.cached_by_tier["disk"] == 112
    assert answer(out) == cold([*ids, 7])
    stats = other.stats()["tiers"]["disk"]
    assert stats["reachable"] == 1 and stats["bytes"] > 0 and stats["lost_total"] == 0
    for salt in ("a", "org_1"):
        assert other.generate(ids, GREEDY, salt=salt).cache.cached_tokens == 0
    for engine in (one, other):
        settled(engine)


@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_a_lost_server_is_a_miss_and_it_may_come_back(
    make_engine: MakeEngine,
    cold: Callable[..., Any],  # noqa: F811
    server: Server,  # noqa: F811
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentkv.engine.kv.redis.TIMEOUT", 0.2)
    one, other = make_engine(**options(server)), make_engine(**options(server))
    ids, fresh = prompt(3, 120), prompt(4, 120)
    share(one, ids)
    assert server.process is not None
    if how == "killed":
        server.stop()
    else:
        os.kill(server.process.pid, signal.SIGSTOP)
    for engine in (one, other):
        for tokens in ([*ids, 7], fresh, [*ids, 8]):
            assert answer(engine.generate(tokens, GREEDY)) == cold(tokens)
    assert other.stats()["tiers"]["disk"]["lost_total"] >= 1
    if how == "killed":
        server.start()
    else:
        os.kill(server.process.pid, signal.SIGCONT)
    for engine in (one, other):
        assert engine._core.lower is not None and engine._core.lower.store is not None
        engine._core.lower.store._until = 0.0  # type: ignore[attr-defined]
    new = prompt(5, 120)
    share(one, new)
    out = other.generate([*new, 7], GREEDY)
    assert out.cache.cached_by_tier["disk"] == 112
    assert answer(out) == cold([*new, 7])
    for engine in (one, other):
        settled(engine)


def test_a_replica_of_another_layout_sees_nothing(make_engine: MakeEngine, server: Server) -> None:  # noqa: F811
    one = make_engine(**options(server))
    ids = prompt(6, 120)
    share(one, ids)
    for other in ({"page_size": 1}, {"kv_dtype": "bfloat16"}):
        engine = make_engine(**options(server, **other))
        assert engine.generate(ids, GREEDY).cache.cached_tokens == 0


def test_two_places_at_once_are_refused_and_the_password_is_hidden(
    make_engine: MakeEngine,
    tmp_path: Any,
) -> None:
    with pytest.raises(InvalidRequest, match="give one of them") as both:
        make_engine(disk_cache=str(tmp_path), remote_cache="redis://:hush@localhost/0")
    assert "hush" not in str(both.value)
    engine = make_engine(remote_cache="redis://:hush@127.0.0.1:1/0")
    assert engine.generate(prompt(7, 40), GREEDY).cache.cached_tokens == 0
    assert "hush" not in repr(engine.config)
