from datetime import datetime

from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_openai import ChatOpenAI

prompt = ChatPromptTemplate.from_messages([("system", "[{stamp}]\n" + """You read applications for allotment gardens on behalf of the association. Sort every letter into WAITING LIST,
TRANSFER, COMPLAINT or OTHER. A transfer needs the number of the plot and the consent of the household. A complaint
names the plot, the matter and since when it has gone on; hedges above two metres, fires and loud machines on Sundays are
the matters that the rules speak of. Never promise a plot, never name the length of the list, and never pass on who
complained. Answer with the label, a dash, and one sentence of at most fifteen words."""), ("human", "{letter}")])
chain = (
    RunnablePassthrough.assign(stamp=RunnableLambda(lambda _: datetime.now().isoformat()))
    | prompt
    | ChatOpenAI(model="gpt-4.1")
)
