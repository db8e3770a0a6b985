"""Which files a run looks at: what was named, and below folders what git knows and has a suffix of ours."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentkv.lint.globs import matches

SUFFIXES = frozenset(
    [
        ".py",
        ".pyi",
        ".pyw",
        ".ipynb",
        ".j2",
        ".jinja",
        ".jinja2",
        ".prompt",
        ".prompty",
        ".txt",
        ".md",
        ".tmpl",
        ".tpl",
        ".template",
        ".mustache",
        ".hbs",
        ".handlebars",
        ".liquid",
        ".yaml",
        ".yml",
        ".json",
        ".jsonl",
        ".ndjson",
        ".toml",
    ]
)
"""Files that a folder is searched for; others only when they are named or included."""

_NEVER = frozenset(("node_modules", "__pycache__", "site-packages", "__pypackages__"))


@dataclass(frozen=True, slots=True)
class Found:
    """`named`: the user named this very file, so that nothing is skipped silently."""

    path: Path
    named: bool


class PathMissing(ValueError):
    """A path that was named does not exist."""


def discover(
    paths: Iterable[Path],
    root: Path,
    *,
    exclude: Sequence[str] = (),
    include: Sequence[str] = (),
    as_found: bool = False,
) -> list[Found]:
    """Files to lint, each once, in a fixed order. Raises `PathMissing`.

    Below a folder: no hidden folders, virtual environments, `node_modules`, nothing that git
    ignores (unless the folder that was named is itself ignored), nothing in `exclude`. A file that
    is named is taken whatever it is, unless `as_found`: then it is judged as if a folder had been
    searched, as hooks need it that name every file that changed.
    """
    found: dict[str, Found] = {}
    for path in paths:
        if path.is_dir():
            for file in _below(path):
                key = os.path.abspath(file)
                if _wanted(file, _relative(key, root), exclude, include):
                    found.setdefault(key, Found(file, False))
        elif path.exists():
            key = os.path.abspath(path)
            if not as_found:
                found[key] = Found(path, True)
            elif _wanted(path, _relative(key, root), exclude, include):
                found[key] = Found(path, False)
        else:
            raise PathMissing(f"there is no file or folder {str(path)!r}.")
    return [found[key] for key in sorted(found)]


def relative(path: Path, root: Path) -> str:
    """A path as globs of the configuration and baselines see it."""
    return _relative(os.path.abspath(path), root)


def _relative(absolute: str, root: Path) -> str:
    try:
        return Path(absolute).relative_to(root).as_posix()
    except ValueError:
        return Path(absolute).as_posix()


def _wanted(file: Path, inner: str, exclude: Sequence[str], include: Sequence[str]) -> bool:
    known = file.suffix.lower() in SUFFIXES or _any(include, inner)
    return known and not _any(exclude, inner)


def _any(globs: Sequence[str], path: str) -> bool:
    return any(matches(glob, path) for glob in globs)


def _below(folder: Path) -> Iterator[Path]:
    listed = _listed(folder)
    if listed is None:
        yield from _walk(folder)
        return
    for name in listed:
        parts = name.split("/")
        if any(_skipped(part) for part in parts[:-1]):
            continue
        path = folder / name
        if path.is_dir():  # a repository within the repository
            if not path.is_symlink():
                yield from _below(path)
        elif path.is_file() and not _in_environment(folder, parts[:-1]):
            yield path


def _listed(folder: Path) -> list[str] | None:
    """What git knows below `folder`, or None: no repository, no git, or an ignored folder."""
    here = folder.absolute()
    if not any((above / ".git").exists() for above in (here, *here.parents)):
        return None
    command = ("git", "-C", str(folder))
    try:
        ignored = subprocess.run((*command, "check-ignore", "-q", "."), capture_output=True)
        if ignored.returncode == 0:
            return None
        done = subprocess.run(
            (*command, "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
            capture_output=True,
        )
    except OSError:
        return None
    if done.returncode != 0:
        return None
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return sorted({name.rstrip("/") for name in names if name})


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            f
            for f in folders
            if not _skipped(f) and not os.path.exists(os.path.join(here, f, "pyvenv.cfg"))
        )
        for name in sorted(files):
            path = Path(here, name)
            if path.is_file():
                yield path


def _skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in _NEVER


def _in_environment(top: Path, parts: Sequence[str]) -> bool:
    path = top
    for part in parts:
        path = path / part
        if _environment(path):
            return True
    return False


_KNOWN: dict[Path, bool] = {}


def _environment(folder: Path) -> bool:
    if folder not in _KNOWN:
        _KNOWN[folder] = (folder / "pyvenv.cfg").exists()
    return _KNOWN[folder]
