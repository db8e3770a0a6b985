"""How the CPU's worker threads wait. Imported for its effect, by the package, before torch.

OpenMP threads spin at barriers by default. With a foreign process on one of few cores, or with two
thread teams in one process, each barrier then costs up to a scheduling quantum (milliseconds,
hundreds of times a step). Threads that sleep at once cost a wake-up from the kernel instead, about
50 microseconds in a virtual machine, which is a third of a decode step. So they spin for a few
microseconds, the time between two products of one layer, and then sleep. On 2 cores, milliseconds a
token: asleep at once 54 alone and 67 beside a busy process; this 42 and 84; ten times as long 40
and 210. A value that the user has set stands, and a torch that was imported before keeps what it
found.
"""

from __future__ import annotations

import os
import sys

_SPINS = "1000"

if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # every OpenMP
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)  # GNU's, which torch's wheels carry
