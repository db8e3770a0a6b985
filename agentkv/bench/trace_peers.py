"""`agentkv trace report` and other tools that look into request logs, on the same logs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agentkv.bench.check import Report, progress
from agentkv.trace.analyse import analyse
from agentkv.trace.readers import read
from agentkv.trace.render import Renderer

SESSIONS = 3
SECONDS = 900

KVLINT = {
    "clock": "dynamic_time",
    "uuid": "dynamic_id",
    "name": "user_in_system",
    "tool_key_order": "key_order",
    "fewshot": "volatile_fewshot",
    "whitespace": "whitespace_drift",
}
"""Its rule for each planted cause, where it has one."""

PCLINT: dict[str, tuple[str, ...]] = {
    "clock": ("datetime", "timestamp", "time"),
    "uuid": ("uuid", "random"),
    "tool_order": ("CL002",),
    "tool_set": ("CL002",),
    "tool_key_order": ("CL002",),
    "model_switch": ("CL003",),
    "sliding_window": ("sliding", "dropped"),
    "edited_history": ("edited", "rewritten", "summar"),
    "image": ("image",),
    "reasoning": ("reasoning", "thinking"),
    "whitespace": ("whitespace", "white space"),
}
"""A code, or a word of its message or hint, that names a planted cause."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool said of a log: `found` something that costs, and the codes and words of it."""

    found: bool
    words: str = ""


Look = Callable[[Path, str], tuple[Said, bool]]
"""Log and kind -> what was said, and whether that names the kind."""


class PeerFailed(RuntimeError):
    """A peer gave no readable answer; the message has its last words."""


def run(
    generator: Path, peers: Path | None, tokenizer: Path | None, *, requests: int = 400
) -> Report:
    """`generator`: the tests' module of planted logs. `peers`: a folder with the programs `kvlint`
    and `promptcachelint`. `tokenizer`: a folder with a `tokenizer.json`, which kvlint needs."""
    from agentkv.bench.trace import write_long

    report = Report("trace peers", "16 logs with one planted cause each, and 4 healthy ones")
    made = _module(generator)
    bad, good = list(made.PLANTED), list(made.HEALTHY)
    with tempfile.TemporaryDirectory(prefix="agentkv-bench-") as scratch:
        folder = Path(scratch)
        for kind in (*bad, *good):
            lines = made.log(kind, made.Shape(seed=3, sessions=SESSIONS), "openai")
            _write(folder / f"{kind}.jsonl", lines)
        long = folder / "long.jsonl"
        write_long(long, requests, 3_400)
        for name, look in _tools(made, folder, peers, tokenizer, report.notes):
            progress(f"trace: {name} on {len(bad) + len(good)} logs")
            row: dict[str, Any] = {"tool": name, "bad": len(bad)}
            start = time.perf_counter()
            answers = {}
            for kind in (*bad, *good):
                try:
                    answers[kind] = look(folder / f"{kind}.jsonl", kind)
                except PeerFailed as error:
                    report.notes.append(f"{name} on {kind}: {error}")
            seconds = time.perf_counter() - start
            none = (Said(False), False)
            row |= {
                "found": sum(answers.get(k, none)[0].found for k in bad),
                "named": sum(answers.get(k, none)[1] for k in bad),
                "good": len(good),
                "false": sum(answers.get(k, none)[0].found for k in good),
                "seconds": seconds,
            }
            start = time.perf_counter()
            try:
                look(long, "clock")
                row["requests_per_second"] = requests / (time.perf_counter() - start)
            except PeerFailed as error:
                report.notes.append(f"{name} on {requests:,} long requests: {error}")
                row["requests_per_second"] = None
            report.rows.append(row)
            missed = [k for k in bad if not answers.get(k, none)[1]]
            report.notes.append(f"{name} does not name: {', '.join(missed) or 'none'}.")
    ours = report.rows[0]
    report.check(
        "agentkv: causes named", f"{ours['named']}/{ours['bad']}", "all",
        ours["named"] == ours["bad"],
    )  # fmt: skip
    report.check("agentkv: healthy logs with a cause", f"{ours['false']}", "0", ours["false"] == 0)
    for row in report.rows[1:]:
        report.check(
            f"at least as many named as by {row['tool']}", f"{ours['named']}",
            f">= {row['named']}", ours["named"] >= row["named"],
        )  # fmt: skip
    return report


def _tools(
    made: ModuleType, folder: Path, peers: Path | None, tokenizer: Path | None, notes: list[str]
) -> list[tuple[str, Look]]:
    found: list[tuple[str, Look]] = [("agentkv trace report", _ours(made))]
    if peers is None:
        notes.append("peers: none given (--peers DIR, a folder with kvlint, promptcachelint).")
        return found
    for name in ("kvlint", "promptcachelint"):
        program = peers / name
        if not program.is_file():
            notes.append(f"{name}: not in {peers}, left out.")
        elif name == "promptcachelint":
            found.append((name, _promptcachelint(program, folder)))
        elif tokenizer is None:
            notes.append("kvlint: it needs a folder with a tokenizer.json, left out.")
        else:
            found.append((name, _kvlint(program, tokenizer, folder)))
    return found


def _ours(made: ModuleType) -> Look:
    def look(log: Path, kind: str) -> tuple[Said, bool]:
        found = analyse(lambda: read([log]), renderer=Renderer(), fixed=False)
        causes = found.causes
        reasons, rules = made.EXPECTED.get(kind, (set(), set()))
        named = bool(causes) and causes[0].reason in reasons and causes[0].rule in rules
        return Said(bool(causes)), named

    return look


def _kvlint(program: Path, tokenizer: Path, folder: Path) -> Look:
    def look(log: Path, kind: str) -> tuple[Said, bool]:
        out = folder / "kvlint.json"
        out.unlink(missing_ok=True)
        bare = folder / "kvlint.jsonl"
        _write(bare, [body for body, _, _ in _requests(log)])
        done = _run([program, "lint", bare, "--model", tokenizer, "--json", out])
        if not out.is_file():
            raise PeerFailed(_last_words(done))
        # Its `low` findings are left out: one of them fires on every log.
        rules = {
            f["rule_id"] for f in json.loads(out.read_text())["findings"] if f["severity"] != "low"
        }
        return Said(bool(rules), " ".join(sorted(rules))), KVLINT.get(kind) in rules

    return look


def _promptcachelint(program: Path, folder: Path) -> Look:
    def look(log: Path, kind: str) -> tuple[Said, bool]:
        trace = folder / "promptcachelint.jsonl"
        _write(
            trace,
            [
                {
                    "provider": "openai",
                    "body": body,
                    "at": at,
                    "session_id": session,
                    "session_explicit": session is not None,
                }
                for body, session, at in _requests(log)
            ],
        )
        done = _run([program, "report", trace, "--json"])
        try:
            sessions = json.loads(done.stdout)["sessions"]
        except (ValueError, KeyError):
            raise PeerFailed(_last_words(done)) from None
        # Informational ones (CL005, CL006) and those about markers are no causes.
        said = [
            f
            for s in sessions
            for r in s["requests"]
            for f in r["findings"]
            if f["code"] in ("CL001", "CL002", "CL003", "CL012")
        ]
        words = " ".join(f"{f['code']} {f['message']} {f['hint']}" for f in said)
        return Said(bool(said), words), any(w in words for w in PCLINT.get(kind, ()))

    return look


def _requests(log: Path) -> Iterator[tuple[dict[str, Any], str | None, float]]:
    """Body, session and time of each line: peers read requests in fewer wrappings than we do."""
    with log.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            body = record.get("request") or record
            session = record.get("session_id")
            drop = ("session_id", "timestamp", "response")
            yield {k: v for k, v in body.items() if k not in drop}, session, 1.75e9 + 30 * number


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("agentkv_planted_logs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _write(path: Path, lines: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Output of a peer. No peer needs the network for what is asked of it here."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=env)
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"no answer in {SECONDS} s") from None


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
    return f"status {done.returncode}: {last[0][:200]}"
