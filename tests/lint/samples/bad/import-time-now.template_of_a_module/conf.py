import datetime
from langchain_core.prompts import ChatPromptTemplate

TODAY = datetime.date.today().isoformat()
SYSTEM = "Date: " + TODAY + "\n" + """You extract structured data from medical letters. Work through the letter from top to bottom.
Collect every diagnosis, every drug with its dose, and every appointment. Keep the original wording.
Write doses in milligrams. Mark anything that is crossed out as uncertain. Do not infer a diagnosis from a drug.
If a letter has several patients, stop and report an error instead of guessing.
Names of doctors are never part of the output. Dates are written as YYYY-MM-DD.
Return an empty list for a section that the letter does not have. Check your output twice."""

prompt = ChatPromptTemplate.from_messages([("system", SYSTEM), ("human", "{letter}")])
