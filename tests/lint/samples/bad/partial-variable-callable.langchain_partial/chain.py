from datetime import datetime

from langchain_core.prompts import PromptTemplate
from langchain_openai import ChatOpenAI


def now():
    return datetime.now().isoformat(timespec="seconds")


prompt = PromptTemplate(
    template="""Time of the request: {moment}
You translate weather warnings for sailors.
Use the Beaufort scale, nautical miles and cardinal directions.
Say first whether it is safe to leave harbour for boats below ten metres.
Then list wind, gusts, sea state, visibility and the next change, one line each.
Do not translate names of sea areas, lights and harbours.
If the warning has expired, say only that.

Warning: {warning}""",
    input_variables=["warning"],
    partial_variables={"moment": now},
)
chain = prompt | ChatOpenAI(model="gpt-4o")
