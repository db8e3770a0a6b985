"""Checks of torch, the GPU and Triton: that they are there, and that they fit each other."""

from __future__ import annotations

import importlib.util
import platform
from typing import Any

from agentkv.bench.device_facts import (
    TRITON_RANGE,
    Card,
    cards,
    cores,
    installed,
    requirement,
    satisfies,
)
from agentkv.doctor.finding import Finding
from agentkv.doctor.system import ENGINE

TORCH_RANGE = ">=2.9,<3"
LEAST_CAPABILITY = 8.0
"""bfloat16 on tensor cores, and the oldest that the kernels are compiled for."""

LEAST_SHARE = 0.5
"""Part of a GPU's memory that should be free; the engine takes up to 0.9 of it."""

CUDA_TORCH = (
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128"
)


def imported_torch() -> Any | None:
    """torch, or None where it is not installed. Raises what a broken one raises."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch


def torch() -> Finding:
    """torch: its version, and whether it was built for the GPU that is here."""
    found = imported_torch()
    if found is None:
        return Finding("torch", "warning", "not installed; the engine needs it", ENGINE)
    number = str(found.__version__)
    cuda, hip = found.version.cuda, getattr(found.version, "hip", None)
    seen = bool(found.cuda.is_available())
    facts = {"version": number, "cuda": cuda, "hip": hip, "cuda_available": seen}
    if not satisfies(number, TORCH_RANGE):
        return Finding(
            "torch", "problem", f"{number}; supported is {TORCH_RANGE}",
            f"pip install 'torch{TORCH_RANGE}'", facts,
        )  # fmt: skip
    built = f"for CUDA {cuda}" if cuda else f"for ROCm {hip}" if hip else "for CPU"
    text = f"{number}, built {built}"
    there = cards()
    if there and not seen:
        if cuda is None:
            return Finding(
                "torch",
                "warning",
                f"{text}, and there is a GPU: {there[0].name}",
                CUDA_TORCH,
                facts,
            )
        return Finding(
            "torch", "problem",
            f"{text}, sees no device although the driver {there[0].driver} lists {there[0].name}; "
            "the driver is older than that CUDA, or CUDA_VISIBLE_DEVICES hides it",
            "nvidia-smi", facts,
        )  # fmt: skip
    return Finding("torch", "ok", text, facts=facts)


def device() -> Finding:
    """The GPUs, or the CPU that takes their place."""
    found = imported_torch()
    there = cards()
    if found is None or not found.cuda.is_available():
        where = f"the engine runs on the CPU ({cores()} cores{_cpu_extras(found)})"
        if there:
            return Finding("device", "warning", f"{_names(there)} not used: {where}", CUDA_TORCH)
        return Finding("device", "ok", f"no GPU; {where}")
    devices = []
    for index in range(found.cuda.device_count()):
        facts = found.cuda.get_device_properties(index)
        free, total = found.cuda.mem_get_info(index)
        devices.append(
            {
                "name": facts.name,
                "capability": f"{facts.major}.{facts.minor}",
                "memory_bytes": total,
                "free_bytes": free,
            }
        )
    driver = there[0].driver if there else None
    facts_all = {"driver": driver, "devices": devices}
    text = ", ".join(
        f"{d['name']} ({d['free_bytes'] / 2**30:.0f} of {d['memory_bytes'] / 2**30:.0f} GiB free)"
        for d in devices
    )
    text += f", driver {driver or 'unknown'}"
    weak = [d for d in devices if float(d["capability"]) < LEAST_CAPABILITY]
    if weak and getattr(found.version, "hip", None) is None:
        return Finding(
            "device", "warning",
            f"{text}; compute capability {weak[0]['capability']} is below {LEAST_CAPABILITY}, which "
            "the kernels are made for",
            "agentkv serve --device cpu", facts_all,
        )  # fmt: skip
    held = [d for d in devices if d["free_bytes"] < LEAST_SHARE * d["memory_bytes"]]
    if held:
        return Finding(
            "device", "warning",
            f"{text}; others hold much of {held[0]['name']}, and the default pool is what they leave",
            "nvidia-smi", facts_all,
        )  # fmt: skip
    return Finding("device", "ok", text, facts=facts_all)


def triton() -> Finding:
    """Triton: within what the kernels are written for, and what torch was built with."""
    number = installed("triton") or installed("pytorch-triton")
    found = imported_torch()
    gpu = found is not None and bool(found.cuda.is_available())
    wants = requirement("triton", of="torch")
    command = f"pip install 'triton{wants or TRITON_RANGE}'"
    facts = {"version": number, "supported": TRITON_RANGE, "torch_wants": wants}
    if number is None:
        if gpu:
            return Finding(
                "triton", "problem", "not installed; a GPU runs nothing without it", command, facts
            )
        if platform.system() != "Linux":
            return Finding("triton", "ok", "not there on this system, and not needed", facts=facts)
        return Finding("triton", "ok", "not installed; a CPU does not need it", command, facts)
    if not satisfies(number, TRITON_RANGE):
        return Finding(
            "triton", "problem" if gpu else "warning",
            f"{number}; the kernels are written for {TRITON_RANGE}", command, facts,
        )  # fmt: skip
    if wants is not None and not satisfies(number, wants):
        return Finding(
            "triton", "warning", f"{number}, and this torch asks for {wants}", command, facts
        )
    pin = f"torch asks for {wants}" if wants else "this torch asks for none"
    return Finding("triton", "ok", f"{number}, within {TRITON_RANGE}; {pin}", facts=facts)


def _names(there: list[Card]) -> str:
    return ", ".join(card.name for card in there)


def _cpu_extras(found: Any | None) -> str:
    """What of the CPU decides its default dtype."""
    amx = getattr(getattr(found, "cpu", None), "_is_amx_tile_supported", None)
    return ", AMX" if amx is not None and amx() else ""
