from datetime import datetime

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, dynamic_prompt

MANUAL = """You repair bicycles over the telephone. Ask for the brand, the year and the noise.
Let people turn the bicycle over before anything else. One step at a time; wait for a yes.
Never let anybody ride with a loose front wheel or without a brake.
If a part is needed, say what it is called and what it costs about."""


@dynamic_prompt
def system(request: ModelRequest) -> str:
    clock = datetime.now().isoformat()
    return f"The time is {clock}.\n{MANUAL}"


agent = create_agent("openai:gpt-4o", [], middleware=[system])
