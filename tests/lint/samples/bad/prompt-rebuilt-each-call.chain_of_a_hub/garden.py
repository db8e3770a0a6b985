from langchain import hub
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4.1")


def sort(letter: str) -> str:
    chain = hub.pull("allotments/letters") | llm
    return chain.invoke({"letter": letter}).content
