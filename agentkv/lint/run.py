"""Lint many files: find them, take from the cache what holds, spread the rest over processes.

report = lint("prompts/")
for finding in report.findings:
    print(finding.path, finding.line, finding.code, finding.tokens_lost)
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any

from agentkv.lint.analyse import Lint, analyse
from agentkv.lint.baseline import Baseline
from agentkv.lint.cache import open_cache
from agentkv.lint.config import Config, load
from agentkv.lint.discover import Found, discover
from agentkv.lint.finding import SEVERITIES
from agentkv.lint.formats import Project
from agentkv.lint.result import FileResult, Report, order
from agentkv.lint.since import Changed
from agentkv.lint.source import Source, SourceError
from agentkv.lint.tokens import counter

MOST_BYTES = 4 << 20
_FEW_BYTES = 1 << 20
"""Less than this to analyse is not worth another process."""


@dataclass(frozen=True, slots=True)
class Stdin:
    """A source that is no file: its text, and the name that decides its format."""

    text: str
    name: str = "-"


def lint(
    what: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = ".",
    *,
    filename: str | None = None,
    config_file: str | os.PathLike[str] | None = None,
    isolated: bool = False,
    format: str | None = None,
    **settings: Any,
) -> Report:
    """Lint paths, or a text.

    `what` is a path, several paths, or the text of a prompt file: a text when `filename` says how
    it would be called (`filename="system.j2"`), or when it has a line break or a blank and no
    file is called so. `settings` are those of `Config` (`target="vllm"`, `severity="info"`);
    the configuration file nearest to the paths is read unless `isolated`.

    Raises `ConfigError`, `PathMissing` and `TokenizerError` (all are ValueErrors).
    """
    text = None
    if filename is not None or (isinstance(what, str) and _is_text(what)):
        if not isinstance(what, str):
            raise TypeError("with filename=, the first argument is the text.")
        text = Stdin(what, filename or "-")
        paths: list[Path] = []
    elif isinstance(what, str | os.PathLike):
        paths = [Path(what)]
    else:
        paths = [Path(p) for p in what]
    file = Path(config_file) if config_file is not None else None
    found = load(start(paths, text), file=file, isolated=isolated, **settings)
    return lint_paths(paths, found.config, root=found.root, stdin=text, format=format)


def start(paths: Sequence[Path], stdin: Stdin | None = None) -> Path:
    """Where the search for a configuration begins: the folder that holds all paths."""
    if not paths:
        here = Path(stdin.name) if stdin is not None else Path()
        return here if here.parent.is_dir() and stdin and stdin.name != "-" else Path()
    return Path(os.path.commonpath([p.absolute() for p in paths]))


def _is_text(what: str) -> bool:
    return any(c.isspace() or c in "{}" for c in what) and not os.path.exists(what)


def lint_source(
    source: Source,
    *,
    config: Config | None = None,
    project: Project | None = None,
    format: str | None = None,
) -> FileResult:
    """Lint one source. Nothing is read beyond it except what its format looks up in `project`."""
    config = config or Config()
    project = project or Project(Path(), stability=config.stability, sinks=config.sinks)
    return analyse(source, Lint.of(config, project), format=format).result()


def lint_paths(
    paths: Iterable[Path | str],
    config: Config | None = None,
    *,
    root: Path | None = None,
    stdin: Stdin | None = None,
    since: str | None = None,
    format: str | None = None,
    baseline: Baseline | None = None,
    as_found: bool = False,
) -> Report:
    """Lint files and folders, and `stdin` if given. `since` is a git revision: only findings in
    prompts that were touched after it. `as_found` judges named files as a folder's. Raises `ConfigError`, `PathMissing`, `TokenizerError`."""
    config = config or Config()
    named = [Path(p) for p in paths]
    root = (root or load(start(named, stdin), isolated=True).root).absolute()
    files = discover(named, root, exclude=config.exclude, include=config.include, as_found=as_found)
    changed = Changed.since(since, root) if since is not None else None
    project = Project(root, [f.path for f in files], stability=config.stability, sinks=config.sinks)
    results = list(_results(files, config, project, format=format).values())
    if stdin is not None:
        source = Source(stdin.name, stdin.text)
        result = analyse(source, Lint.of(config, project), format=format).result()
        results.append(_told(result, named=True))
    return settle(results, config, root, changed=changed, baseline=baseline)


def settle(
    results: list[FileResult],
    config: Config,
    root: Path,
    *,
    changed: Changed | None = None,
    baseline: Baseline | None = None,
) -> Report:
    """Results as a report: what severity, `--since` and the baseline leave of them."""
    tokens = counter(config.tokenizer)
    findings = [f for r in results for f in r.findings]
    least = SEVERITIES.index(config.severity)
    shown = [f for f in findings if f.rank <= least]
    report = Report(
        files=results,
        findings=[],
        exact=tokens.exact,
        tokenizer=tokens.name,
        target=config.target,
        hidden=len(findings) - len(shown),
    )
    if changed is not None:
        shown = [f for f in shown if changed.touches(f)]
    known = baseline
    if known is None and config.baseline is not None:
        known = Baseline.read(root / config.baseline, root)
    if known is not None:
        parted = known.split(shown)
        report.baselined, report.gone = len(shown) - len(parted.new), parted.gone
        shown = parted.new
    report.findings = order(shown)
    return report


# -- many files ------------------------------------------------------------------------------------


def _results(
    files: list[Found], config: Config, project: Project, *, format: str | None
) -> dict[str, FileResult]:
    """Results by absolute path, in the order of `files`."""
    tokens = counter(config.tokenizer).name
    cache = open_cache(
        project.root,
        f"{config.digest()} {tokens} {format}",
        folder=config.cache_dir,
        on=config.cache,
    )
    keys = {os.path.abspath(f.path): f for f in files}
    began = time_ns()
    known = cache.known(keys)
    todo = [(key, str(f.path)) for key, f in keys.items() if key not in known]
    fresh = _analyse_all(todo, config, project, format) if todo else {}
    results = {key: fresh.get(key) or known[key] for key in keys}
    if fresh or len(cache.entries) > 2 * len(keys):
        cache.store(results, fresh, began=began)
    # A cached result is known by another name when it is run from another folder.
    return {
        key: _told(_named(result, str(keys[key].path)), named=keys[key].named)
        for key, result in results.items()
    }


def _named(result: FileResult, path: str) -> FileResult:
    if result.path == path:
        return result
    from msgspec.structs import replace

    findings = tuple(replace(f, path=path) for f in result.findings)
    return replace(result, path=path, findings=findings)


def _told(result: FileResult, *, named: bool) -> FileResult:
    """A file that was named and that nobody knows is skipped, and the user is told."""
    if result.format is not None or result.skipped is not None or not named:
        return result
    from msgspec.structs import replace

    why = "not a kind of file that holds prompts"
    if result.path == "-":
        why = "its name is needed to know what it is (--stdin-filename app.py)"
    return replace(result, skipped=why)


def _analyse_all(
    todo: list[tuple[str, str]], config: Config, project: Project, format: str | None
) -> dict[str, FileResult]:
    Lint.of(config, project)  # what is wrong with the settings is said here, not in a worker
    jobs = config.jobs or _processors()
    if jobs > 1 and (len(todo) < 2 or sum(map(_size, (key for key, _ in todo))) < _FEW_BYTES):
        jobs = 1
    if jobs == 1:
        _begin(config, project, format)
        return dict(_analyse_some(todo))
    # Neighbours share modules, so a process gets runs of them; many runs, so that all end together.
    most = max(1, min(200, len(todo) // (jobs * 6)))
    chunks = [todo[i : i + most] for i in range(0, len(todo), most)]
    out: dict[str, FileResult] = {}
    kind = "fork" if sys.platform == "linux" else "spawn"
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context(kind),
        initializer=_begin,
        initargs=(config, project, format),
    )
    try:
        for done in as_completed([pool.submit(_analyse_some, chunk) for chunk in chunks]):
            out.update(done.result())
    finally:
        pool.shutdown(cancel_futures=True)
    return out


_worker: tuple[Lint, str | None, frozenset[str]] | None = None
"""What this process lints with; set once by `_begin`."""


def _begin(config: Config, project: Project, format: str | None) -> None:
    global _worker
    inside = frozenset(os.path.abspath(f) for f in project.files)
    _worker = (Lint.of(config, project), format, inside)


def _analyse_some(files: list[tuple[str, str]]) -> list[tuple[str, FileResult]]:
    assert _worker is not None
    run, format, inside = _worker
    out = []
    for key, path in files:
        try:
            source = _read(Path(path))
        except SourceError as error:
            out.append((key, FileResult(path=path, skipped=str(error), alone=True)))
            continue
        result = analyse(source, run, format=format).result()
        outside = () if result.alone else _outside(run.project, inside)
        if outside:
            from msgspec.structs import replace

            result = replace(result, outside=outside)
        out.append((key, result))
    return out


def _read(path: Path) -> Source:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SourceError(f"larger than {MOST_BYTES >> 20} MiB")
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}") from error
    return Source.read(path, most_bytes=MOST_BYTES)


def _outside(project: Project, inside: frozenset[str]) -> tuple[str, ...]:
    """Files that were read for this project so far and that are not part of the run."""
    read: set[str] = set()
    for notes in project.notes.values():
        read.update(os.path.abspath(p) for p in getattr(notes, "modules", ()))
    return tuple(sorted(p for p in read - inside if os.path.exists(p)))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
