"""Check of the kernels: each is run once on a small batch, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

from agentkv.doctor.accelerator import imported_torch
from agentkv.doctor.finding import Finding
from agentkv.doctor.system import ENGINE

SECONDS = 300.0
INTERPRETED = ("decode", "rms_norm")
"""What Triton's own interpreter can run as it comes; the others need its repair by the tests."""


class Crashed(Exception):
    """The process ended without an answer."""


def kernels(*, interpreter: bool = True) -> Finding:
    """On a GPU compiled; on a CPU the references, and two kernels in Triton's interpreter."""
    torch = imported_torch()
    if torch is None:
        return Finding("kernels", "skipped", "needs torch", ENGINE)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        rows = smoke(device)
    except Crashed as error:
        return Finding("kernels", "problem", str(error), "agentkv bench kernels")
    bad = [row for row in rows if not row["ok"]]
    facts: dict[str, Any] = {"device": device, "kernels": rows}
    if bad:
        return Finding("kernels", "problem", _fault(bad[0]), _help(device), facts)
    how = "compiled" if device == "cuda" else "references"
    text = f"{', '.join(row['kernel'] for row in rows)} agree with what they should give ({how})"
    if device == "cpu" and interpreter and importlib.util.find_spec("triton") is not None:
        try:
            facts["interpreted"] = smoke(device, *INTERPRETED, interpret=True)
        except Crashed as error:
            facts["interpreted"] = [
                {"kernel": "interpreter", "ok": False, "fault": str(error), "error": None}
            ]
        bad = [row for row in facts["interpreted"] if not row["ok"]]
        if bad:
            # The engine on a CPU does not use Triton; who develops kernels does.
            return Finding(
                "kernels", "warning", f"{text}; in Triton's interpreter: {_fault(bad[0])}",
                "pip install 'triton>=3.7,<3.10'", facts,
            )  # fmt: skip
        text += f"; {', '.join(INTERPRETED)} also in Triton's interpreter"
    return Finding("kernels", "ok", text, facts=facts)


def smoke(device: str, *names: str, interpret: bool = False) -> list[dict[str, Any]]:
    """Rows of agentkv.doctor.smoke. Raises `Crashed`."""
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    more = {"TRITON_INTERPRET": "1"} if interpret else {}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agentkv.doctor.smoke", device, *names],
            env={**inherited, **more}, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Crashed(f"the kernels did not end within {SECONDS:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Crashed(f"the process ended with status {done.returncode}: {last[:300]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return rows


def _fault(row: dict[str, Any]) -> str:
    if row["fault"] is not None:
        return f"{row['kernel']} failed: {row['fault']}"
    return f"{row['kernel']} is wrong by {row['error']:.2g} of its largest number"


def _help(device: str) -> str:
    return (
        "agentkv serve --device cpu" if device == "cuda" else "pip install --force-reinstall torch"
    )
