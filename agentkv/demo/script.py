"""The four conversations of the demo: what each customer says, and which tools each turn calls.

A turn is one message of the customer and one or more rounds; a round is a group of tool calls
that really run, after which the model is called once and writes the text that comes next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One scripted tool call: the tool's name and its arguments."""

    tool: str
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Turn:
    """What the customer says, and the rounds of tool calls that follow."""

    user: str
    rounds: tuple[tuple[Call, ...], ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One customer's conversation; `id` is its thread."""

    id: str
    customer: str
    turns: tuple[Turn, ...]

    @property
    def model_calls(self) -> int:
        return sum(len(turn.rounds) for turn in self.turns)


def _turn(user: str, *rounds: Call | tuple[Call, ...]) -> Turn:
    return Turn(user, tuple((r,) if isinstance(r, Call) else r for r in rounds))


CONVERSATIONS: tuple[Conversation, ...] = (
    Conversation(
        "ingrid",
        "Ingrid Solberg (plus)",
        (
            _turn(
                "Hello, my address is ingrid.solberg@example.net. I ordered an espresso machine.",
                Call("find_customer", {"email": "ingrid.solberg@example.net"}),
            ),
            _turn(
                "When does order A-5001 arrive?",
                Call("track_shipment", {"order_id": "A-5001"}),
            ),
            _turn(
                "Can it still go to Kirkegata 2 instead?",
                Call("change_address", {"order_id": "A-5001", "address": "Kirkegata 2"}),
            ),
            _turn(
                "My grinder from A-4710 squeaks. Is it under warranty, and can someone look at it?",
                Call("check_warranty", {"order_id": "A-4710", "sku": "GRN-10"}),
                Call("open_ticket", {"customer_id": "C-104", "subject": "Grinder squeaks"}),
            ),
        ),
    ),
    Conversation(
        "mateus",
        "Mateus Carvalho (standard)",
        (
            _turn(
                "Hi, mateus.c@example.org here. Two questions about my orders.",
                Call("find_customer", {"email": "mateus.c@example.org"}),
            ),
            _turn(
                "I moved. Please send A-5012 to Rua do Almada 210, Porto.",
                Call("change_address", {"order_id": "A-5012", "address": "Rua do Almada 210"}),
            ),
            _turn(
                "And what about the mug that came broken?",
                Call("list_refunds", {"customer_id": "C-117"}),
            ),
            _turn(
                "A second mug has a crack too. I would like 18.00 back for it, and a person to call"
                " me.",
                Call("create_refund", {"order_id": "A-4988", "cents": 1800, "reason": "cracked"}),
                Call("open_ticket", {"customer_id": "C-117", "subject": "Call back, two mugs"}),
            ),
        ),
    ),
    Conversation(
        "priya",
        "Priya Raghavan (plus)",
        (
            _turn(
                "Good morning, priya.raghavan@example.com. My filters have not come.",
                Call("find_customer", {"email": "priya.raghavan@example.com"}),
            ),
            _turn(
                "The order is A-5009.",
                Call("track_shipment", {"order_id": "A-5009"}),
            ),
            _turn(
                "Then the grinder: A-4890 got loud. Is it covered, and is a new one in stock?",
                Call("check_warranty", {"order_id": "A-4890", "sku": "GRN-10"}),
                Call("check_stock", {"sku": "GRN-10"}),
            ),
            _turn(
                "Please have a colleague look at both.",
                Call(
                    "open_ticket", {"customer_id": "C-131", "subject": "Late parcel, loud grinder"}
                ),
            ),
        ),
    ),
    Conversation(
        "tom",
        "Tom Ashworth (standard)",
        (
            _turn(
                "It's Tom, t.ashworth@example.co.uk. My kettle leaks at the handle.",
                Call("find_customer", {"email": "t.ashworth@example.co.uk"}),
            ),
            _turn(
                "It was in A-4995. Is that still under warranty?",
                Call("check_warranty", {"order_id": "A-4995", "sku": "KET-02"}),
            ),
            _turn(
                "I'd rather have my money back, 69.00.",
                Call("create_refund", {"order_id": "A-4995", "cents": 6900, "reason": "leaks"}),
                Call("list_refunds", {"customer_id": "C-148"}),
            ),
            _turn(
                "Do you have another kettle, if I change my mind?",
                Call("check_stock", {"sku": "KET-02"}),
            ),
        ),
    ),
)
