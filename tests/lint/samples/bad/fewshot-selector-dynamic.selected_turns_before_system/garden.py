from langchain_core.example_selectors import SemanticSimilarityExampleSelector
from langchain_core.prompts import ChatPromptTemplate, FewShotChatMessagePromptTemplate

selector = SemanticSimilarityExampleSelector.from_examples(LETTERS, EMBEDDINGS, STORE, k=2)
shots = FewShotChatMessagePromptTemplate(
    example_selector=selector,
    example_prompt=ChatPromptTemplate.from_messages([("human", "{letter}"), ("ai", "{label}")]),
)
prompt = ChatPromptTemplate.from_messages(
    [
        shots,
        ("system", """You read applications for allotment gardens on behalf of the association. Sort every letter into WAITING LIST,
TRANSFER, COMPLAINT or OTHER. A transfer needs the number of the plot and the consent of the household. A complaint
names the plot, the matter and since when it has gone on; hedges above two metres, fires and loud machines on Sundays are
the matters that the rules speak of. Never promise a plot, never name the length of the list, and never pass on who
complained. Answer with the label, a dash, and one sentence of at most fifteen words."""),
        ("human", "{letter}"),
    ]
)
