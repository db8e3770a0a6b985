"""How the CPU's worker threads wait. Imported for its effect, by the package, before torch.

OpenMP threads spin at barriers by default. With a foreign process on one of few cores, or with two
thread teams in one process, each barrier then costs up to a scheduling quantum (milliseconds,
hundreds of times a step). Threads that sleep at once cost a wake-up from the kernel instead, about
50 microseconds in a virtual machine, which is a third of a decode step. So they spin for a few
microseconds, the time between two products of one layer, and then sleep. On 2 cores, milliseconds a
token: asleep at once 54 alone and 67 beside a busy process; this 42 and 84; ten times as long 40
and 210. A value that the user has set stands, and a torch that was imported before keeps what it
found.

GNU's OpenMP, which torch's wheels for Linux carry, spins a tenth as long once there are more threads
than cores, idle ones counted: another engine in the process, or torch in a caller's own thread, made a
step that decodes 4 sequences of 1,500 tokens take 115 ms instead of 75. It does so unless the policy is
`ACTIVE`, which says nothing else to it. To other OpenMPs it says to spin for ever, so it is only said
to GNU's, and taken back when torch is there: programs that are started from here do not hear of it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

_SPINS = "1000"
_set: list[str] = []


def loaded() -> None:
    """torch has been imported, and its OpenMP has read what it was told."""
    while _set:
        os.environ.pop(_set.pop(), None)


def _brings_gnu() -> bool:
    """Whether torch comes with GNU's OpenMP. Does not import it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    return any(Path(found.origin).with_name("lib").glob("libgomp*"))


def wanted(environment: Mapping[str, str], *, gnu: bool) -> dict[str, str]:
    """What is to be said beside what the user has said. `gnu`: torch's OpenMP is GNU's."""
    if "OMP_WAIT_POLICY" in environment:
        return {}
    if "GOMP_SPINCOUNT" in environment:
        return {"OMP_WAIT_POLICY": "PASSIVE"}
    return {"OMP_WAIT_POLICY": "ACTIVE" if gnu else "PASSIVE", "GOMP_SPINCOUNT": _SPINS}


if "torch" not in sys.modules:
    _said = wanted(os.environ, gnu=_brings_gnu())
    os.environ.update(_said)
    if _said.get("OMP_WAIT_POLICY") == "ACTIVE":  # others read it later than GNU's
        _set.extend(_said)
