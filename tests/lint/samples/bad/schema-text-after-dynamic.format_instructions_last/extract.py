from langchain_core.output_parsers import JsonOutputParser
from langchain_core.prompts import PromptTemplate
from pydantic import BaseModel, Field


class Invoice(BaseModel):
    number: str = Field(description="the invoice's number")
    total: float = Field(description="the total with taxes")
    currency: str = Field(description="three letters")


parser = JsonOutputParser(pydantic_object=Invoice)
prompt = PromptTemplate(
    template="Extract the invoice from this message.\n\n{query}\n\n{format_instructions}\n",
    input_variables=["query"],
    partial_variables={"format_instructions": parser.get_format_instructions()},
)
