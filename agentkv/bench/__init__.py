"""Workloads, peers, and the tables in the docs.

Importing this imports `agentkv.engine`, so that its thread settings hold for both sides of a
comparison: they take effect only before torch is imported.
"""

import agentkv.engine as _engine  # noqa: F401  (for its effect)
