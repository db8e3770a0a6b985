"""What a call reused and why the rest was not: `CacheReport`, and tables of it."""

from agentkv.engine.types import Reason
from agentkv.report.parts import LayoutUse, MissUse, SegmentUse
from agentkv.report.report import CacheReport
from agentkv.report.table import table

__all__ = ["CacheReport", "LayoutUse", "MissUse", "Reason", "SegmentUse", "table"]
