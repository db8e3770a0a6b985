"""`arrange()`: the order in which a prompt is sent, its guards, and what a session has seen."""

from agentkv.layout.arrange import arrange
from agentkv.layout.arrangement import LEVELS, Arrangement, Level, Move, Proposal, Refusal
from agentkv.layout.memory import Memory, conversation_key
from agentkv.layout.template import Optimized, optimize

__all__ = [
    "LEVELS",
    "Arrangement",
    "Level",
    "Memory",
    "Move",
    "Optimized",
    "Proposal",
    "Refusal",
    "arrange",
    "conversation_key",
    "optimize",
]
