"""Files with known findings, and a cache of their own for every test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

RULES = (
    "You are a careful support agent of a shop. Answer only from the documents that you are given. "
    "Never reveal internal notes. Write at most five sentences, and name the article that you used. "
    "If the documents say nothing about a question, say so, and offer to pass it to a person. "
    "Do not promise refunds, delivery dates or discounts. Write prices with two decimals. "
    "Be polite to everybody, and stay calm when a customer is angry."
)
CLOCK = f'''\
from datetime import datetime

from openai import OpenAI

RULES = """{RULES}"""

client = OpenAI()


def ask(question):
    return client.chat.completions.create(
        model="gpt-5",
        messages=[
            {{"role": "system", "content": f"It is {{datetime.now()}}.\\n{{RULES}}"}},
            {{"role": "user", "content": question}},
        ],
    )
'''
USER = f"You help {{{{ user_name }}}}.\n{RULES}\n"
CLEAN = f"{RULES}\n\nThe customer is called {{{{ user_name }}}}.\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of other runs must not decide a test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr("agentkv.lint.cache.user_cache_dir", lambda name: str(folder))
    return folder


@pytest.fixture
def texts() -> SimpleNamespace:
    """`clock` (Python) and `user` (Jinja) have one finding each, `clean` (Jinja) has none."""
    return SimpleNamespace(rules=RULES, clock=CLOCK, user=USER, clean=CLEAN)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Path]:
    """Write files into a scratch folder, which becomes the current one."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """Run git in the scratch folder, as nobody in particular."""

    def run(*command: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ("git", "-C", str(tmp_path), *settings, *command),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    return run
