"""`arrange()`: the order in which a prompt is sent, its guards, and what a session has seen."""

from agentkv.layout.arrange import arrange
from agentkv.layout.arrangement import LEVELS, Arrangement, Level, Move, Refusal
from agentkv.layout.memory import Memory, conversation_key

__all__ = [
    "LEVELS",
    "Arrangement",
    "Level",
    "Memory",
    "Move",
    "Refusal",
    "arrange",
    "conversation_key",
]
