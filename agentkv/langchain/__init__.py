"""LangChain models over agentkv: `ChatAgentKV` for messages, `AgentKV` for plain text."""

from agentkv.langchain.chat import ChatAgentKV
from agentkv.langchain.text import AgentKV

__all__ = ["AgentKV", "ChatAgentKV"]
