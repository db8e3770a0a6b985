"""Cache targets, as prices are computed for; their numbers live with the cache models."""

from __future__ import annotations

from agentkv.trace.caches.target import Target, target, targets

__all__ = ["Target", "target", "targets"]
