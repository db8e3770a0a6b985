from datetime import date

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="gpt-4o")
EFFECTIVE = "2025-01-01"

HANDBOOK = f"""The rules below are those in force from {EFFECTIVE}.
You help self-employed people with their quarterly tax return.
Explain which forms are due and which receipts belong to them.
Say clearly when a question needs a tax adviser, and then stop.
Small business threshold: 22,000 a year. Input tax: monthly above 7,500.
Travel: 0.30 per kilometre. Meals: 14 for eight hours, 28 for a full day.
Keep amounts in euros, with two digits after the point."""


def advise(question):
    asked = f"{question}\n\nToday is {date.today()}."
    return llm.invoke([SystemMessage(content=HANDBOOK), HumanMessage(content=asked)])
