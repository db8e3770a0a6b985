from llama_index.core import PromptTemplate, VectorStoreIndex

QA = PromptTemplate(
    "Here is what we know.\n"
    "---------------------\n"
    "{context_str}\n"
    "---------------------\n"
    "Answer the query with it and without anything else that you know. Answer in the language of "
    "the query. Give numbers with their unit. If several entries fit, take the newest and say when "
    "it was written. If nothing fits, say so in one sentence and name the nearest entry.\n"
    "Query: {query_str}\n"
    "Answer: "
)


def engine(documents):
    return VectorStoreIndex.from_documents(documents).as_query_engine(text_qa_template=QA)
