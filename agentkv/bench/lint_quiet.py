"""`agentkv lint` on code that holds no prompts: how loud it is, and how fast."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from agentkv.bench.check import Report
from agentkv.lint.config import Config
from agentkv.lint.result import Report as Findings
from agentkv.lint.run import lint_paths

PACKAGES = (
    "torch",
    "transformers",
    "sympy",
    "networkx",
    "numpy",
    "hypothesis",
    "mypy",
    "pygments",
    "mpmath",
    "pip",
)
"""Installed packages that are no prompt libraries. Those that are missing are left out, and said."""

LEAST_LINES = 1_000_000
SECONDS = 30.0
CACHED = 3.0


def installed() -> tuple[list[Path], list[str]]:
    """Folders of `PACKAGES`, and those that are not installed."""
    found, missing = [], []
    for name in PACKAGES:
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        if folders:
            found.append(Path(folders[0]))
        else:
            missing.append(name)
    return found, missing


def run(paths: Sequence[Path] = (), *, jobs: int = 2) -> Report:
    """Findings in `paths` (installed packages if there are none) at default severity, twice: the
    second run takes what it can from the cache."""
    missing: list[str] = []
    folders = list(paths)
    if not folders:
        folders, missing = installed()
    report = Report("lint quiet", "Code that holds no prompts")
    if not folders:
        report.notes.append("skipped: none of the packages is installed; name folders instead.")
        return report
    root = Path(os.path.commonpath([f.absolute() for f in folders]))
    with tempfile.TemporaryDirectory(prefix="agentkv-lint-") as cache:
        config = Config(cache_dir=cache, jobs=jobs, severity="info")
        busy = _processor()
        cold, first = _timed(folders, config, root)
        busy = _processor() - busy
        warm, second = _timed(folders, config, root)
    if _summary(cold) != _summary(warm):
        raise RuntimeError("the run from the cache gives other findings than the run before it.")
    total = 0
    for folder in folders:
        row = _row(folder, cold)
        total += int(row["lines"])
        report.rows.append(row)
    loud = [f for f in cold.findings if f.severity != "info"]
    per_million = first / total * 1e6 if total else 0.0
    report.rows.append(
        {
            "package": "all",
            "files": len(cold.checked),
            "lines": total,
            "prompts": cold.prompts,
            "findings": len(loud),
            "info": len(cold.findings) - len(loud),
        }
    )
    if not paths:
        report.check("lines", f"{total:,}", f">= {LEAST_LINES:,}", total >= LEAST_LINES)
    report.check("findings at default severity", str(len(loud)), "0", not loud)
    report.check(
        f"seconds a million lines, {jobs} processes",
        f"{per_million:.1f} ({first:.1f} s in all)",
        f"< {SECONDS:.0f}",
        per_million < SECONDS,
    )
    report.notes.append(f"processor time of the first run: {busy:.1f} s.")
    report.check("seconds from the cache", f"{second:.2f}", f"< {CACHED:.0f}", second < CACHED)
    for one in loud:
        where = os.path.relpath(one.path, root)
        report.notes.append(f"{where}:{one.line}: {one.code} {one.name} ({one.severity})")
    broken = [f for f in cold.files if f.skipped and "internal error" in f.skipped]
    broken += [f for f in cold.files if any("internal error" in note for note in f.notes)]
    report.check("files that could not be analysed", str(len(broken)), "0", not broken)
    for file in broken:
        report.notes.append(f"{os.path.relpath(file.path, root)}: {file.skipped or file.notes}")
    if missing:
        report.notes.append(f"not installed: {', '.join(missing)}.")
    return report


def _timed(folders: Sequence[Path], config: Config, root: Path) -> tuple[Findings, float]:
    start = time.perf_counter()
    found = lint_paths(folders, config, root=root)
    return found, time.perf_counter() - start


def _processor() -> float:
    """Seconds that this process and its workers have computed."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def _summary(report: Findings) -> list[tuple[str, int, int, str]]:
    return [(f.path, f.line, f.column, f.code) for f in report.findings]


def _row(folder: Path, found: Findings) -> dict[str, str | int]:
    inside = f"{folder}{os.sep}"
    files = [f for f in found.files if f.path.startswith(inside)]
    findings = [f for f in found.findings if f.path.startswith(inside)]
    return {
        "package": folder.name,
        "files": len(files),
        "lines": sum(_lines(Path(f.path)) for f in files),
        "prompts": sum(f.prompts for f in files),
        "findings": sum(f.severity != "info" for f in findings),
        "info": sum(f.severity == "info" for f in findings),
    }


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0
