"""Engines of a process: one for a configuration, closed by the last that lets go."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from agentkv.client import ChatRequest, InProcessClient, engines
from agentkv.client import errors as e
from agentkv.engine.config import EngineConfig
from agentkv.engine.errors import EngineClosed
from agentkv.engine.types import SamplingParams

REQUEST = ChatRequest(
    messages=({"role": "user", "content": "Hello"},),
    params=SamplingParams(temperature=0, max_tokens=3),
)


@pytest.fixture
def config(tiny_llama_dir: Path) -> EngineConfig:
    return EngineConfig(model=str(tiny_llama_dir), dtype="float32", pool_tokens=2048)


def test_clients_of_one_configuration_share_an_engine(config: EngineConfig) -> None:
    one, two = InProcessClient(config), InProcessClient(config)
    assert not one.loaded
    one.send(REQUEST)
    assert two.send(REQUEST).report.cached_tokens > 0
    engine = one.engine
    assert two.engine is engine
    one.close()
    one.close()
    assert two.send(REQUEST).text, "still held by the other"
    two.close()
    with pytest.raises(EngineClosed):
        engine.generate("x")
    assert one.send(REQUEST).report.cached_tokens == 0, "a new one"
    one.close()


def test_a_client_that_is_gone_holds_nothing_and_closes_nothing(config: EngineConfig) -> None:
    """Frameworks copy a model for one call: such copies must not keep an engine for ever, and the
    next copy wants what the last one left in the cache."""
    InProcessClient(config).send(REQUEST)
    gc.collect()
    last = InProcessClient(config)
    assert last.send(REQUEST).report.cached_tokens > 0, "the same engine"
    engine = last.engine
    last.close()
    assert config not in engines._entries
    with pytest.raises(EngineClosed):
        engine.generate("x")


def test_an_engine_of_the_caller_is_never_closed(config: EngineConfig) -> None:
    from agentkv.engine import Engine

    with Engine(config) as mine:
        client = InProcessClient(mine)
        client.send(REQUEST)
        client.close()
        assert mine.generate("x", REQUEST.params).text is not None


def test_an_unknown_model_leaves_nothing_behind() -> None:
    client = InProcessClient(EngineConfig(model="/no/such/model"))
    for _ in range(2):
        with pytest.raises(e.UnknownModel):
            client.send(REQUEST)
    assert EngineConfig(model="/no/such/model") not in engines._entries


def test_a_forked_child_starts_afresh(config: EngineConfig) -> None:
    client = InProcessClient(config)
    client.send(REQUEST)
    assert engines._entries
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        fresh = not engines._entries and not client.loaded
        os.write(writer, b"1" if fresh else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"1"
    client.close()
