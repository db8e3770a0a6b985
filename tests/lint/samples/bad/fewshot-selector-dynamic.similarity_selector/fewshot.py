from langchain_core.example_selectors import SemanticSimilarityExampleSelector
from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate


def build(examples, embeddings, store):
    selector = SemanticSimilarityExampleSelector.from_examples(examples, embeddings, store, k=3)
    return FewShotPromptTemplate(
        example_selector=selector,
        example_prompt=PromptTemplate.from_template("Word: {word}\nPlural: {plural}"),
        prefix="Give the plural of every word.",
        suffix="Loan words keep the plural of their language where dictionaries have it. If there are "
        "two, give the more frequent one first and the other in brackets. Words without a plural "
        "get a dash. Compounds change their last part only. Names of peoples follow the rule for "
        "nouns. Do not explain the rule, and do not give the article.\n\nWord: {input}\nPlural:",
        input_variables=["input"],
    )
