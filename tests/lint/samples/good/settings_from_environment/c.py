import os

from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_messages(
    [
        (
            "system",
            "You work for {company} in {country}. Explain bills line by line. Taxes are explained "
            "last. Never say that a bill is wrong; open a case instead. Name the day on which the "
            "next bill is written. Speak in the first person and in whole sentences.",
        ),
        ("placeholder", "{messages}"),
        ("human", "{question}"),
    ]
).partial(company=os.environ["COMPANY"], country=os.environ.get("COUNTRY", "Norway"))
