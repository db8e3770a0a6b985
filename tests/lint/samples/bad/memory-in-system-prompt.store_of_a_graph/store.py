from langgraph.store.base import BaseStore
from langchain.chat_models import init_chat_model

model = init_chat_model("openai:gpt-4o")
PROMPT = """You are the support assistant of a hardware shop. Answer politely and in full sentences.
Never promise a delivery date that is not in the order record. Quote prices with tax.
If a customer wants a refund, ask for the order number and the reason before anything else.
Escalate to a human when the customer is angry, mentions a lawyer, or asks three times for the same thing.
Do not discuss competitors. Do not invent product features. Keep answers under 120 words.
Use bullet points for steps, and plain prose for everything else. Close with an offer to help further."""


def call_model(state, config, *, store: BaseStore):
    namespace = ("memories", config["configurable"]["user_id"])
    memories = store.search(namespace, query=str(state["messages"][-1].content))
    info = "\n".join(d.value["data"] for d in memories)
    system_msg = f"You know this of the user: {info}\n{PROMPT}"
    response = model.invoke([{"role": "system", "content": system_msg}] + state["messages"])
    return {"messages": response}
