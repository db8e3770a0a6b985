from langchain import hub
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4.1")
chain = hub.pull("allotments/letters") | llm


def sort(letter: str) -> str:
    return chain.invoke({"letter": letter}).content
