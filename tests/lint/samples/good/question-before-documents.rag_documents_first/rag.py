from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_template(
    """Answer the question from the documents alone. Quote the sentence on which your answer rests,
with the number of its document in square brackets. If two documents contradict each other,
prefer the newer one and say so. If the answer is not in the documents, write "not found".
Do not use what you know from elsewhere, and do not speculate about what could be meant.

Documents:
{documents}

Question: {question}"""
)
