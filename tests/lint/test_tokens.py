"""Counting: offline, exact where a tokenizer is at hand, an estimate that says so elsewhere."""

from __future__ import annotations

import socket
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from agentkv.lint import tokens
from agentkv.lint.run import lint
from agentkv.lint.tokens import TokenizerError, counter, estimate


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


def word_tokenizer(folder: Path) -> Path:
    """A tokenizer whose tokens are words."""
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_without_a_tokenizer_it_is_an_estimate() -> None:
    made = counter()
    assert (made.exact, made.name) == (False, "estimate")
    assert made.count("You are a helpful assistant.") == estimate("You are a helpful assistant.")


def test_local_tokenizer_is_exact(tmp_path: Path) -> None:
    path = word_tokenizer(tmp_path)
    for given in (str(path), str(tmp_path)):
        made = counter(given)
        assert made.exact
        assert made.count("one two  three") == 3


def test_report_says_by_what(tmp_path: Path, texts: Any) -> None:
    text = texts.user
    (about,) = lint(text, filename="sys.j2").findings
    exact = lint(text, filename="sys.j2", tokenizer=word_tokenizer(tmp_path))
    assert exact.exact and exact.findings[0].static_behind == 1 + len(
        texts.rules.split()
    )  # and the full stop
    assert "about" in about.message and "about 9" not in exact.findings[0].message


def test_missing_and_broken_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no tokenizer file"):
        counter(str(tmp_path / "none.json"))
    pytest.importorskip("tokenizers")
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(TokenizerError, match="not a tokenizer file"):
        counter(str(broken)).count("x")


def test_a_broken_table_of_tiktoken_is_not_asked_for(tmp_path: Path) -> None:
    """tiktoken would remove it and download it again."""
    path = tmp_path / sha1(tokens._URL.format("o200k_base").encode()).hexdigest()
    path.write_bytes(b"cut off")
    assert not counter().exact
    assert path.exists()


def test_tiktoken_never_downloads_even_when_it_wants_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table may be deleted between the look and the load."""
    pytest.importorskip("tiktoken")
    monkeypatch.setattr(tokens, "_cached", lambda name, digest: Path("there"))
    made = counter()
    assert made.name == "tiktoken o200k_base"
    assert made.count("You are helpful.") == estimate("You are helpful.")


def test_estimate_is_near_a_real_vocabulary(smollm2_dir: Path) -> None:
    """Within a fifth on English prompts and code, where this vocabulary is at home."""
    exact = counter(str(smollm2_dir)).count
    prose = (
        "You are a careful assistant. Answer only from the documents below, in at most three "
        "sentences.\n\n1. Cite the source.\n2. Say when you do not know.\n\n## Output\n\n- JSON "
    ) * 3
    code = 'def add(a: int, b: int) -> int:\n    """Sum."""\n    return a + b\n' * 3
    for text in (prose, code):
        assert estimate(text) == pytest.approx(exact(text), rel=0.2)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("你是一个有帮助的助手。请用中文回答所有问题。", 12, 24),
        ("あなたは親切なアシスタントです。", 9, 18),
        ("당신은 친절한 도우미입니다.", 7, 16),
        ("Вы полезный помощник.", 5, 14),
        ("1234567890", 4, 5),
        (" " * 400, 1, 5),
        ("a" * 700, 80, 110),
    ],
)
def test_estimate_knows_scripts(text: str, least: int, most: int) -> None:
    """Ranges of cl100k and o200k; len/4 is far below them for Chinese, Japanese and Korean."""
    assert least <= estimate(text) <= most
