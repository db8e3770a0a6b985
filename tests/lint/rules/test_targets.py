"""The data file of cache targets."""

from __future__ import annotations

import re

import pytest

from agentkv.lint.target import target, targets


def test_rows_are_dated_and_say_where_they_come_from() -> None:
    assert set(targets()) == {
        "agentkv", "vllm", "sglang", "llamacpp", "openai", "anthropic", "gemini", "deepseek",
    }  # fmt: skip
    for row in targets().values():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.as_of)
        assert row.source and row.title and "" in row.minimum
        assert 0 <= row.read_price <= 1 <= row.write_price


@pytest.mark.parametrize(
    ("name", "model", "least"),
    [
        ("anthropic", None, 1024),
        ("anthropic", "claude-opus-5", 512),
        ("anthropic", "claude-sonnet-4-5-20250929", 1024),
        ("anthropic", "claude-opus-4-1-20250805", 1024),
        ("anthropic", "claude-opus-4-7", 2048),
        ("anthropic", "claude-3-5-haiku-latest", 2048),
        ("anthropic", "us.anthropic.claude-opus-4-5-20251101-v1:0", 4096),
        ("anthropic", "anthropic/claude-haiku-4-5", 4096),
        ("openai", "gpt-4o", 1024),
        ("gemini", "gemini-2.5-pro", 2048),
        ("gemini", "gemini-3.8-flash", 4096),
        ("vllm", "any", 16),
        ("agentkv", None, 1),
    ],
)
def test_least_by_model(name: str, model: str | None, least: int) -> None:
    assert target(name).least(model) == least


def test_models_that_match_at_breakpoints_only() -> None:
    assert target("openai").exact("gpt-5.6-mini")
    assert not target("openai").exact("gpt-5.1")
    assert not target("openai").exact(None)


def test_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="agentkv, vllm"):
        target("redis")
