from langchain_core.messages import SystemMessage, trim_messages
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

llm = ChatOpenAI(model="gpt-4o")
SYSTEM = SystemMessage(content="You are a pub quiz host. Ask, wait, reveal, and keep the score.")


def host(state: MessagesState):
    recent = trim_messages(
        state["messages"], strategy="last", token_counter=len, max_tokens=12, start_on="human"
    )
    return {"messages": [llm.invoke([SYSTEM, *recent])]}


graph = StateGraph(MessagesState)
graph.add_node("host", host)
graph.add_edge(START, "host")
graph.add_edge("host", END)
app = graph.compile()
