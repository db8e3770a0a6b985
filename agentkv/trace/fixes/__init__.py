"""Mendings of a log, each on a copy of its calls: what the requests would be if a cause were gone.

A mending models what its advice says, well enough to price it; it writes nothing back. Each is made
in two steps: `learn` sees all calls once, `mend` then changes one call after the other.
"""

from agentkv.trace.fixes.apply import MENDINGS, fix_calls

__all__ = ["MENDINGS", "fix_calls"]
