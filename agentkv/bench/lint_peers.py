"""`agentkv lint` and other linters for prompt caches on the same files."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentkv.bench.check import Report
from agentkv.lint.config import Config
from agentkv.lint.run import lint_paths

Places = dict[Path, set[int]]
"""Lines with a finding, by file."""

SECONDS = 900


@dataclass(frozen=True, slots=True)
class Case:
    """One input: files, whether there is something to find, and where (None: anywhere)."""

    name: str
    bad: bool
    files: tuple[Path, ...]
    lines: Places | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A linter. `find` gives its findings in some files, and `suffixes` are those that it reads."""

    name: str
    suffixes: frozenset[str]
    find: Callable[[Sequence[Path]], Places]


class PeerFailed(RuntimeError):
    """A peer gave no readable answer; the message has its last words."""


def compare(title: str, cases: Sequence[Case], tools: Sequence[Tool]) -> Report:
    """One row a tool: what it found of the bad cases, and what it said about the good ones.

    `readable`: bad cases with a file that the tool can read at all. `at the line`: a finding is
    where the fault is, not only somewhere in the same case.
    """
    report = Report("lint peers", title)
    bad = [c for c in cases if c.bad]
    good = [c for c in cases if not c.bad]
    for tool in tools:
        files = [f for c in cases for f in c.files if f.suffix in tool.suffixes]
        start = time.perf_counter()
        try:
            places = tool.find(files) if files else {}
        except (PeerFailed, OSError, subprocess.TimeoutExpired) as error:
            report.notes.append(f"{tool.name}: {error}")
            continue
        seconds = time.perf_counter() - start
        report.rows.append(
            {
                "linter": tool.name,
                "bad": len(bad),
                "readable": sum(any(f.suffix in tool.suffixes for f in c.files) for c in bad),
                "found": sum(any(places.get(f) for f in c.files) for c in bad),
                "at the line": sum(_at(c, places) for c in bad),
                "good": len(good),
                "false": sum(any(places.get(f) for f in c.files) for c in good),
                "seconds": seconds,
            }
        )
    return report


def _at(case: Case, places: Places) -> bool:
    if case.lines is None:
        return any(places.get(f) for f in case.files)
    return any(lines & places.get(file, set()) for file, lines in case.lines.items())


def tools(root: Path, bin: Path | None, tokenizer: Path | None) -> tuple[list[Tool], list[str]]:
    """This linter, and the peers whose programs are in `bin`; and why others are left out."""
    found, notes = [ours(root)], []
    for name, make in (("pcdlint", pcdlint), ("cachedrift", cachedrift)):
        if bin is not None and (bin / name).is_file():
            found.append(make(bin / name))
        elif bin is not None:
            notes.append(f"{name}: not in {bin}, left out.")
    if bin is not None and (bin / "kvlint").is_file():
        if tokenizer is None:
            notes.append("kvlint: it needs a folder with a tokenizer.json, left out.")
        else:
            found.append(kvlint(bin / "kvlint", tokenizer))
    elif bin is not None:
        notes.append(f"kvlint: not in {bin}, left out.")
    if bin is None:
        notes.append("peers: none given (--peers DIR, a folder with pcdlint, cachedrift, kvlint).")
    return found, notes


def ours(root: Path) -> Tool:
    from agentkv.lint.discover import SUFFIXES

    def find(files: Sequence[Path]) -> Places:
        places: Places = defaultdict(set)
        for one in lint_paths(files, Config(cache=False), root=root).findings:
            lines = places[Path(one.path)]
            lines.update(range(one.line, one.end_line + 1))
            lines.update(also.line for also in one.also)
        return places

    return Tool("agentkv lint", SUFFIXES, find)


def pcdlint(program: Path) -> Tool:
    def find(files: Sequence[Path]) -> Places:
        places: Places = defaultdict(set)
        for one in _json([program, "--format", "json", *files]):
            last = one.get("end_lineno") or one["lineno"]
            places[_absolute(one["file_path"])].update(range(one["lineno"], last + 1))
        return places

    return Tool("pcdlint", frozenset({".py"}), find)


def cachedrift(program: Path) -> Tool:
    def find(files: Sequence[Path]) -> Places:
        places: Places = defaultdict(set)
        for one in _json([program, "--format", "json", *files])["findings"]:
            places[_absolute(one["file"])].add(one["line"])
        return places

    return Tool("cachedrift", frozenset({".py", ".js", ".ts", ".go", ".rb"}), find)


def kvlint(program: Path, tokenizer: Path) -> Tool:
    """It reads logs of requests, one file a call. It has no lines: a finding is about the file.
    `low` findings are left out, since one fires on every log."""

    def find(files: Sequence[Path]) -> Places:
        places: Places = {}
        with tempfile.TemporaryDirectory(prefix="agentkv-lint-") as folder:
            out = Path(folder) / "report.json"
            for file in files:
                out.unlink(missing_ok=True)
                _run([program, "lint", file, "--model", tokenizer, "--json", out])
                if not out.is_file():
                    continue  # not a log that it can read
                said = json.loads(out.read_text("utf-8"))["findings"]
                if any(one["severity"] != "low" for one in said):
                    places[file] = set(range(1, file.read_text("utf-8").count("\n") + 2))
        return places

    return Tool("kvlint", frozenset({".jsonl"}), find)


def _absolute(path: str) -> Path:
    """Peers name files as seen from the current folder."""
    return Path(os.path.abspath(path))


def _json(command: Sequence[str | Path]) -> Any:
    done = _run(command)
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        name = os.path.basename(command[0])
        raise PeerFailed(f"status {done.returncode} of {name}, which said: {last[0]}") from None


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Output of a peer. No peer needs the network for what is asked of it here."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=env)
