"""The four conversations of the demo: what each customer says. The agent finds its own tools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conversation:
    """One customer's conversation; `id` is its thread, `turns` are the customer's messages."""

    id: str
    customer: str
    turns: tuple[str, ...]


CONVERSATIONS: tuple[Conversation, ...] = (
    Conversation(
        "ingrid",
        "Ingrid Solberg (plus, C-104)",
        (
            "Hello! Where is the parcel of my order A-5001?",
            "Is the grinder GRN-10 of order A-4710 still under warranty?",
            "It squeaks. Please open a ticket for me, my number is C-104.",
        ),
    ),
    Conversation(
        "mateus",
        "Mateus Carvalho (standard, C-117)",
        (
            "Hi, mateus.c@example.org here. Which refunds do I have? My number is C-117.",
            "I moved. Please change the address of order A-5012 to Rua do Almada 210, Porto.",
        ),
    ),
    Conversation(
        "priya",
        "Priya Raghavan (plus, C-131)",
        (
            "Good morning, where is order A-5009?",
            "And is the grinder GRN-10 in stock?",
            "Thank you. That is all for today.",
        ),
    ),
    Conversation(
        "tom",
        "Tom Ashworth (standard, C-148)",
        (
            "It's Tom, t.ashworth@example.co.uk. What is in order A-4995?",
            "The kettle leaks. I would like 6900 cents back for order A-4995.",
        ),
    ),
)
