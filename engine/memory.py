"""How much memory the KV pool may take."""

from __future__ import annotations

import os
from pathlib import Path

SHARE = 4
"""One part in `SHARE` of the available memory, never all of it: a CPU shares it with everyone."""

WINDOWS = 64


def available_bytes() -> int:
    """Memory that can be had without swapping, under the cgroup's limit. Falls back to 4 GiB."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            found.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass  # no cgroup v2 here: the machine's own figure stands
    return min(found) if found else 4 << 30


def pool_tokens_for(bytes_per_token: int, window: int) -> int:
    """Pool size in tokens: a quarter of the available memory, at least one context window and at
    most `WINDOWS` of them."""
    affordable = available_bytes() // SHARE // bytes_per_token
    return max(window, min(affordable, WINDOWS * window))
