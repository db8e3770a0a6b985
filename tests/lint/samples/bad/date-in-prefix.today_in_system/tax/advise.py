from datetime import date

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4o")

HANDBOOK = """You help self-employed people with their quarterly tax return.
Explain which forms are due and which receipts belong to them.
Say clearly when a question needs a tax adviser, and then stop.
Use the thresholds of the handbook below and no others.
Small business threshold: 22,000 a year. Input tax: monthly above 7,500.
Travel: 0.30 per kilometre. Meals: 14 for eight hours, 28 for a full day.
Keep amounts in euros, with two digits after the point."""


def advise(question):
    system = f"Today is {date.today()}.\n\n{HANDBOOK}"
    return llm.invoke([SystemMessage(content=system), HumanMessage(content=question)])
