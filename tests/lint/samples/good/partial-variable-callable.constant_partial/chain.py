from langchain_core.prompts import PromptTemplate
from langchain_openai import ChatOpenAI


def house_rules():
    return "Be brief, be exact, be kind."


prompt = PromptTemplate(
    template="""{rules}
You translate weather warnings for sailors.
Use the Beaufort scale, nautical miles and cardinal directions.
Say first whether it is safe to leave harbour for boats below ten metres.
Then list wind, gusts, sea state, visibility and the next change, one line each.
Do not translate names of sea areas, lights and harbours.

Warning: {warning}""",
    input_variables=["warning"],
    partial_variables={"rules": house_rules},
)
chain = prompt | ChatOpenAI(model="gpt-4o")
