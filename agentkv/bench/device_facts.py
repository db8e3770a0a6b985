"""What this machine is: versions, cards, driver. Needs neither torch nor Triton to say so."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import requires as metadata_requires
from importlib.metadata import version as metadata_version
from pathlib import Path
from typing import Any

TRITON_RANGE = ">=3.6,<3.10"
"""Versions of Triton that the kernels are written for."""


@dataclass(frozen=True, slots=True)
class Card:
    """One NVIDIA GPU, as its driver tells. Memory in MiB."""

    name: str
    driver: str
    memory_total: int
    memory_free: int
    capability: str


def cards() -> list[Card] | None:
    """The NVIDIA GPUs that `nvidia-smi` lists, or None where it is not there or has no answer."""
    fields = "name,driver_version,memory.total,memory.free,compute_cap"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
        return [card(line) for line in done.stdout.splitlines() if line.strip()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def card(line: str) -> Card:
    """One line of nvidia-smi's table. Raises ValueError for anything else."""
    name, driver, total, free, capability = (part.strip() for part in line.split(","))
    return Card(name, driver, int(total), int(free), capability)


def installed(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata_version(distribution)
    except PackageNotFoundError:
        return None


def requirement(distribution: str, of: str) -> str | None:
    """The versions of `distribution` that `of` asks for (`==3.7.1`), or None if it says nothing."""
    try:
        wanted = metadata_requires(of) or []
    except PackageNotFoundError:
        return None
    for line in wanted:
        found = re.match(r"\s*([A-Za-z0-9._-]+)\s*\(?\s*([^;)]*)\)?\s*(?:;(.*))?$", line)
        # A requirement of an extra is nobody's pin.
        if found and found[1].lower() == distribution and "extra" not in (found[3] or ""):
            return found[2].replace(" ", "") or None
    return None


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def satisfies(version: str, wanted: str) -> bool:
    """Whether a release is within `>=3.6,<3.10`, `==3.7.1` or `~=3.8.0`."""
    return all(_satisfies(release(version), part) for part in wanted.split(",") if part)


def _satisfies(have: tuple[int, ...], part: str) -> bool:
    found = re.match(r"(==|~=|>=|<=|!=|>|<)(.+)", part.strip())
    if found is None:
        raise ValueError(f"not a version specifier: {part!r}")
    sign, want = found[1], release(found[2])
    size = max(len(have), len(want))
    a, b = (v + (0,) * (size - len(v)) for v in (have, want))
    if sign == "~=":
        return a >= b and a[: len(want) - 1] == want[:-1]
    if sign in ("==", "!=") and found[2].endswith("*"):
        return (have[: len(want)] == want) is (sign == "==")
    return {
        "==": a == b, "!=": a != b, ">=": a >= b, "<=": a <= b, ">": a > b, "<": a < b,
    }[sign]  # fmt: skip


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """The facts that a measurement is worth nothing without."""
    found = cards()
    facts: dict[str, Any] = {
        "agentkv": installed("agentkv"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "cpu": _cpu_name(),
        "torch": installed("torch"),
        "triton": installed("triton"),
        "flashinfer": installed("flashinfer-python"),
        "cards": [c.name for c in found or ()],
        "driver": found[0].driver if found else None,
    }
    return facts


def _cpu_name() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # no /proc on this system
    return platform.processor() or None
