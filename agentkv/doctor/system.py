"""Checks of what every part of agentkv stands on: Python, the package, memory, directories."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from agentkv.bench.device_facts import cores, installed
from agentkv.doctor.finding import Finding
from agentkv.engine.config import DEFAULT_MODEL
from agentkv.engine.memory import SHARE, available_bytes

LEAST_PYTHON = (3, 11)
ENGINE = "pip install 'agentkv[engine]'"
ENGINE_MODULES = (
    "blake3", "gguf", "h11", "huggingface_hub", "llguidance", "prometheus_client", "safetensors",
    "starlette", "tokenizers", "torch", "transformers", "uvicorn",
)  # fmt: skip
"""What the extra `engine` brings (Triton is checked on its own)."""

LEAST_FREE = 1 << 30
"""Bytes that a cache directory should have room for: a small model, compiled kernels."""

EMBEDDED_BYTES = 540_000_000
"""Weights of the embedded model in float32."""

EMBEDDED_TOKEN = 30 * 2 * 3 * 64 * 4
"""Bytes that one token of K/V takes there in float32."""

EMBEDDED_WINDOW = 8192


def python() -> Finding:
    """The interpreter and the platform."""
    text = (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {cores()} cores"
    )
    if sys.version_info < LEAST_PYTHON:
        wanted = ".".join(map(str, LEAST_PYTHON))
        return Finding(
            "python",
            "problem",
            f"{text}; agentkv needs {wanted} or newer",
            "make PYTHON=python3.12",
        )
    return Finding("python", "ok", text)


def package() -> Finding:
    """agentkv itself, and the modules of its engine."""
    number = installed("agentkv") or "unknown"
    missing = [m for m in ENGINE_MODULES if importlib.util.find_spec(m) is None]
    facts = {"version": number, "missing": missing}
    if missing:
        whole = len(missing) == len(ENGINE_MODULES)
        lacks = "the engine is not installed" if whole else f"the engine lacks {', '.join(missing)}"
        return Finding(
            "agentkv", "warning", f"{number}; {lacks}: lint, trace, layout and the client work",
            ENGINE, facts,
        )  # fmt: skip
    return Finding("agentkv", "ok", f"{number}, with the engine", facts=facts)


def memory() -> Finding:
    """Memory of the host against the pool that the engine takes when it is not told."""
    free = available_bytes()
    window = EMBEDDED_WINDOW * EMBEDDED_TOKEN
    facts = {"available_bytes": free, "one_window_bytes": window}
    text = f"{free / 2**30:.1f} GiB available; the default pool takes up to {free / SHARE / 2**30:.1f} GiB"
    if free < EMBEDDED_BYTES + window:
        return Finding(
            "memory", "problem",
            f"{free / 2**30:.1f} GiB available: {DEFAULT_MODEL} needs "
            f"{(EMBEDDED_BYTES + window) / 2**30:.1f} GiB with one context window",
            "agentkv serve --pool-tokens 2048 --dtype bfloat16", facts,
        )  # fmt: skip
    if free // SHARE < window:
        return Finding(
            "memory", "warning",
            f"{text}: less than one window of {EMBEDDED_WINDOW} tokens, which it takes all the same",
            "agentkv serve --kv-dtype bfloat16", facts,
        )  # fmt: skip
    return Finding("memory", "ok", text, facts=facts)


def directories() -> Finding:
    """Whether what is kept between runs can be written, and has room."""
    from agentkv.engine.model.store import home

    places = {"AGENTKV_HOME": home()}
    if importlib.util.find_spec("triton") is not None:
        places["TRITON_CACHE_DIR"] = triton_cache()
    facts = {}
    for variable, path in places.items():
        fault = unwritable(path)
        if fault is not None:
            return Finding(
                "directories", "problem", f"{path} cannot be written: {fault}",
                f"export {variable}=/a/directory/of/yours",
            )  # fmt: skip
        free = shutil.disk_usage(nearest(path)).free
        facts[variable] = {"path": str(path), "free_bytes": free}
        if free < LEAST_FREE:
            return Finding(
                "directories", "warning",
                f"{path} is on a disk with {free / 2**20:.0f} MiB left",
                f"export {variable}=/a/directory/on/another/disk", facts,
            )  # fmt: skip
    names = ", ".join(str(path) for path in places.values())
    return Finding("directories", "ok", f"writable: {names}", facts=facts)


def triton_cache() -> Path:
    """Where Triton keeps compiled kernels."""
    override = os.environ.get("TRITON_CACHE_DIR")
    base = Path(os.environ.get("TRITON_HOME", Path.home()))
    return Path(override) if override else base / ".triton" / "cache"


def nearest(path: Path) -> Path:
    """`path`, or the first place above it that exists."""
    return next(p for p in (path, *path.parents) if p.exists())


def unwritable(path: Path) -> str | None:
    """Why nothing can be written below `path`, or None. Leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=nearest(path)):
            return None
    except OSError as error:
        return error.strerror or str(error)
