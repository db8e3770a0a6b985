from datetime import datetime

from llm.client import Llm

RULES = """You sell second-hand books. Describe the state of a book honestly: spots, notes, smell.
Prices are fixed, but the third book is free. First editions are only sold in the shop.
Books that are not there can be searched for; that takes a week and costs nothing.
Do not talk about living authors, and do not spoil the end of a novel."""


class Shop:
    def __init__(self, llm: Llm):
        self.llm = llm

    def _now(self):
        return datetime.now().strftime("%d.%m.%Y %H:%M")

    def answer(self, text):
        system = "Shop time: {}\n{}".format(self._now(), RULES)
        return self.llm.ask(system, text)
