from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate

EXAMPLES = [{"word": "mouse", "plural": "mice"}, {"word": "box", "plural": "boxes"}]

prompt = FewShotPromptTemplate(
    examples=EXAMPLES,
    example_prompt=PromptTemplate.from_template("Word: {word}\nPlural: {plural}"),
    prefix="Give the plural of every word. Loan words keep the plural of their language where "
    "dictionaries have it. If there are two, give the more frequent one first and the other in "
    "brackets. Words without a plural get a dash. Compounds change their last part only.",
    suffix="Word: {input}\nPlural:",
    input_variables=["input"],
)
