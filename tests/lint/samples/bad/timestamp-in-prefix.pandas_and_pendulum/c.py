import pendulum
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

llm = ChatOpenAI()


def build(text):
    prompt = ChatPromptTemplate.from_messages(
        [
            (
                "system",
                f"Local time {pendulum.now('Europe/Oslo')}. You plan ferry trips between islands. "
                "Name the pier, the deck for cars and the crossing time. Ferries do not wait for "
                "trains. In winter the last crossing is an hour earlier. Dogs travel on deck. "
                "Bicycles are free. Never promise a place for a car without a reservation. If a "
                "crossing is cancelled, name the next one and the bridge that leads around the fjord.",
            ),
            ("human", "{text}"),
        ]
    )
    return (prompt | llm).invoke({"text": text})
