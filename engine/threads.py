"""How the CPU's worker threads wait. Imported before torch, by `engine.py`, for its effect.

OpenMP threads spin at barriers by default. With a foreign process on one of few cores, each barrier
then costs a scheduling quantum (milliseconds, hundreds of times a step); sleeping at barriers costs
microseconds on a quiet machine. `bench cpu` prints both. A value that the user has set stands.
"""

from __future__ import annotations

import os
import sys

if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
