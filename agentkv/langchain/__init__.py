"""LangChain models over agentkv: `ChatAgentKV` for messages, `AgentKV` for plain text."""

from agentkv.langchain.chat import ChatAgentKV
from agentkv.langchain.price import Pricing
from agentkv.langchain.structured import StructuredOutputTruncated
from agentkv.langchain.text import AgentKV

__all__ = ["AgentKV", "ChatAgentKV", "Pricing", "StructuredOutputTruncated"]
