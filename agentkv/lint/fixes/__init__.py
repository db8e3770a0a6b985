"""Fixes: from a finding to edits that remove it, or to the reason why nobody should make them.

A fix is proposed by looking at the model and at the source's own text, made in memory, read again
and compared; only what passes is offered. Nothing of the project is run: Jinja is rendered in its
sandbox with made-up values, every other template by substitution here.
"""

from __future__ import annotations

from agentkv.lint.fixes.engine import apply, propose
from agentkv.lint.fixes.rounds import ROUNDS, after, chosen

__all__ = ["ROUNDS", "after", "apply", "chosen", "propose"]
