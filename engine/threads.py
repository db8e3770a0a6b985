"""How the CPU's worker threads wait. Imported for its effect, by the package, before torch.

OpenMP threads spin at barriers by default. With a foreign process on one of few cores, or with two
thread teams in one process, each barrier then costs up to a scheduling quantum (milliseconds,
hundreds of times a step); sleeping at barriers costs microseconds on a quiet machine. A value that
the user has set stands, and a torch that was imported before keeps what it found.
"""

from __future__ import annotations

import os
import sys

if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
