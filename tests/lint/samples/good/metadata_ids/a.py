from datetime import datetime
from uuid import uuid4

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4o")
SYSTEM = """You draw up packing lists for hikers. Ask for the number of nights and the season.
Weigh everything. Nothing is packed twice. Water is found on the way, food is not.
End with the weight of the whole and with what can be left at home."""


def pack(text, user_id):
    config = {
        "configurable": {"thread_id": str(uuid4())},
        "metadata": {"user": user_id, "at": datetime.now().isoformat()},
        "run_name": f"pack-{uuid4().hex[:8]}",
    }
    return llm.invoke([SystemMessage(SYSTEM), HumanMessage(text)], config=config)
