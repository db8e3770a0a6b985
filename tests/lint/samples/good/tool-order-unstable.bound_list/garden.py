from langchain.chat_models import init_chat_model

from plots.tools import free_plots, transfer, waiting_list

TOOLS = [free_plots, transfer, waiting_list]
model = init_chat_model("openai:gpt-4.1")


def answer(messages):
    return model.bind_tools(list(TOOLS)).invoke(messages)
