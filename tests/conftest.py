"""Fixtures shared by the whole suite: models, engines, recorded traces."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# The suite is about the CPU, and about stand-ins for devices; `agentkv bench device` is for real ones.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from agentkv.engine import threads as _threads  # noqa: F401  (before torch: how its threads wait)

if TYPE_CHECKING:
    from agentkv.engine import Engine

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def nobody_was_anywhere() -> None:
    """Session names are short here, and their whereabouts are the process's."""
    if "agentkv.engine.why" in sys.modules:
        sys.modules["agentkv.engine.why"].EVERYWHERE.clear()


@pytest.fixture(scope="session")
def traces() -> Path:
    """Recorded traces that lie beside the repository; tests that need them skip without."""
    folder = Path(os.environ.get("AGENTKV_TRACES", ROOT.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"no recorded traces at {folder} (set AGENTKV_TRACES)")
    return folder


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """The converted embedded model; fetched on first use."""
    from agentkv.engine.model.store import resolve

    return resolve("smollm2-135m")


@pytest.fixture(scope="session")
def tiny_llama_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 2 layers with a byte-level tokenizer and a ChatML template."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-llama")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    pairs = [
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "t"),
        ("Ġ", "a"),
        ("i", "n"),
        ("h", "e"),
        ("l", "l"),
        ("o", "n"),
    ]
    words = [*special, *alphabet, *("".join(p) for p in pairs)]
    vocab = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
        )
    )
    template = ROOT / "engine" / "model" / "templates" / "smollm2_tools.jinja"
    (folder / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"))
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture(scope="session")
def tiny_words_dir(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of one layer with the embedded model's tokenizer, template and vocabulary: real
    token counts at next to no cost. What it samples is hardly ever the way its text is encoded."""
    import shutil

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("tiny-words")
    for path in smollm2_dir.iterdir():
        if path.name.startswith(("tokenizer", "chat_template")):
            shutil.copy(path, folder / path.name)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=32768,
        eos_token_id=2,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.fixture
def make_engine(tiny_llama_dir: Path) -> Iterator[Callable[..., Engine]]:
    """Build engines on the tiny model, float32, invariants checked after every step; all closed."""
    from agentkv.engine import Engine

    made: list[Engine] = []

    def make(**overrides: Any) -> Engine:
        settings: dict[str, Any] = {
            "model": str(tiny_llama_dir),
            "served_name": "tiny",
            "dtype": "float32",
            "threads": 1,
            "pool_tokens": 4096,
            "check_invariants": True,
        }
        engine = Engine(**{**settings, **overrides})
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="session")
def engine(smollm2_dir: Path) -> Iterator[Engine]:
    """The embedded model in float32, page size 1. Shared: flush it before you count hits."""
    from agentkv.engine import Engine

    with Engine(model=str(smollm2_dir), served_name="smollm2-135m", dtype="float32") as shared:
        yield shared


@pytest.fixture(scope="session")
def one_engine(tiny_llama_dir: Path) -> Iterator[Engine]:
    """An engine on the tiny model for the whole run; use `shared`, which empties it."""
    from agentkv.engine import Engine

    with Engine(
        model=str(tiny_llama_dir),
        served_name="tiny",
        dtype="float32",
        threads=1,
        pool_tokens=8192,
    ) as made:
        yield made


@pytest.fixture
def shared(one_engine: Engine) -> Engine:
    """An engine whose cache and memory of earlier calls are empty."""
    one_engine.flush()
    one_engine._core.explainer.forget()
    return one_engine


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(engine, **config)` starts a server and returns its URL; all are stopped."""
    from agentkv.engine.serve.app import create_app
    from agentkv.engine.serve.config import ServeConfig
    from agentkv.engine.serve.run import address, bind, make_server

    stops: list[Callable[[], None]] = []

    def start(engine: Any, **settings: Any) -> str:
        config = ServeConfig(port=0, **settings)
        sock = bind(config)
        server = make_server(create_app(engine, config), config)
        loop = asyncio.new_event_loop()

        def work() -> None:
            loop.run_until_complete(server.serve(sockets=[sock]))
            loop.close()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        end = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.005)

        def stop() -> None:
            server.force_exit = True
            server.should_exit = True
            thread.join(10)

        stops.append(stop)
        return address(sock)

    yield start
    for stop in stops:
        stop()
