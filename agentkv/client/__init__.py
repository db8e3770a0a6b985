"""How a request reaches an engine: in process, or over HTTP. One protocol, one set of errors."""

from agentkv.client.base import (
    CallRequest,
    ChatDelta,
    ChatReply,
    ChatRequest,
    Client,
    ReplyChoice,
    TextRequest,
    Timeouts,
)
from agentkv.client.errors import AgentKVError
from agentkv.client.http import HttpClient
from agentkv.client.inproc import InProcessClient

__all__ = [
    "AgentKVError",
    "CallRequest",
    "ChatDelta",
    "ChatReply",
    "ChatRequest",
    "Client",
    "HttpClient",
    "InProcessClient",
    "ReplyChoice",
    "TextRequest",
    "Timeouts",
]
