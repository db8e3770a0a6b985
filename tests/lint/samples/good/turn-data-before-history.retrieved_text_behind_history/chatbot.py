from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_openai import ChatOpenAI

prompt = ChatPromptTemplate.from_messages(
    [
        (
            "system",
            "You answer questions of tenants about their house rules, their heating and their "
            "letting contract. Say which paragraph an answer comes from.",
        ),
        MessagesPlaceholder("chat_history"),
        ("human", "{context}\n\n{input}"),
    ]
)
chain = prompt | ChatOpenAI(model="gpt-4o-mini")


def ask(retriever, history, text):
    found = "\n\n".join(d.page_content for d in retriever.invoke(text))
    return chain.invoke({"context": found, "chat_history": history, "input": text})
