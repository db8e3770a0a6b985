"""The desk's database and its tools: real SQL, fixed content."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool

from agentkv.demo.desk import TODAY, connect, fill
from agentkv.demo.script import CONVERSATIONS
from agentkv.demo.tools import desk_tools


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    fill(tmp_path / "desk.sqlite")
    opened = connect(tmp_path / "desk.sqlite")
    yield opened
    opened.close()


def use(connection: sqlite3.Connection, name: str, **args: Any) -> Any:
    tool = next(t for t in desk_tools(connection) if t.name == name)
    return json.loads(tool.invoke(args))


def test_fill_refuses_a_file_that_is_there(tmp_path: Path) -> None:
    fill(tmp_path / "desk.sqlite")
    with pytest.raises(FileExistsError):
        fill(tmp_path / "desk.sqlite")


def test_two_fresh_desks_are_the_same(tmp_path: Path) -> None:
    dumps = []
    for name in ("a", "b"):
        fill(tmp_path / name)
        connection = connect(tmp_path / name)
        dumps.append(list(connection.iterdump()))
        connection.close()
    assert dumps[0] == dumps[1]


def test_reading_tools(connection: sqlite3.Connection) -> None:
    assert use(connection, "find_customer", email="Ingrid.Solberg@example.net")["id"] == "C-104"
    assert [o["id"] for o in use(connection, "list_orders", customer_id="C-104")["orders"]] == [
        "A-5001",
        "A-4710",
    ]
    order = use(connection, "get_order", order_id="A-5001")
    assert order["status"] == "shipped"
    assert order["lines"] == [
        {"sku": "ESP-40", "qty": 1, "cents": 54900},
        {"sku": "FLT-100", "qty": 2, "cents": 1600},
    ]
    assert use(connection, "track_shipment", order_id="A-5001")["last_place"] == "Gothenburg hub"
    assert use(connection, "check_stock", sku="GRN-10")["restock_on"] == "2025-03-28"
    assert use(connection, "list_refunds", customer_id="C-117")["refunds"][0]["cents"] == 1800


def test_warranty_counts_months_from_the_order(connection: sqlite3.Connection) -> None:
    covered = use(connection, "check_warranty", order_id="A-4710", sku="GRN-10")
    assert covered == {"title": "Burr grinder Mk II", "until": "2026-05-21", "valid": True}
    with connection:
        connection.execute("UPDATE orders SET placed_on = '2022-01-01' WHERE id = 'A-4710'")
    expired = use(connection, "check_warranty", order_id="A-4710", sku="GRN-10")
    assert (expired["until"], expired["valid"]) == ("2024-01-01", False)


def test_refund_is_stored_and_never_exceeds_what_was_paid(connection: sqlite3.Connection) -> None:
    made = use(connection, "create_refund", order_id="A-4995", cents=4900, reason="leaks")
    row = connection.execute("SELECT * FROM refunds WHERE id = ?", (made["refund"],)).fetchone()
    assert (row["cents"], row["status"], row["requested_on"]) == (4900, "pending", TODAY)
    again = use(connection, "create_refund", order_id="A-4995", cents=2001, reason="more")
    assert again == {"error": "amount must be between 1 and 2000 cents"}
    assert "error" in use(connection, "create_refund", order_id="A-4995", cents=0, reason="none")
    assert "refund" in use(
        connection, "create_refund", order_id="A-4995", cents=2000, reason="rest"
    )


def test_address_changes_only_while_processing(connection: sqlite3.Connection) -> None:
    assert use(connection, "change_address", order_id="A-5012", address="Elsewhere 1")["changed"]
    assert use(connection, "get_order", order_id="A-5012")["address"] == "Elsewhere 1"
    refused = use(connection, "change_address", order_id="A-5001", address="Elsewhere 1")
    assert refused == {"error": "order A-5001 is shipped; its address is final"}
    assert use(connection, "get_order", order_id="A-5001")["address"] == "Storgata 14, 0184 Oslo"


def test_ticket_is_stored(connection: sqlite3.Connection) -> None:
    made = use(connection, "open_ticket", customer_id="C-131", subject="Loud grinder")
    row = connection.execute("SELECT * FROM tickets WHERE id = ?", (made["ticket"],)).fetchone()
    assert (row["customer_id"], row["subject"], row["status"]) == ("C-131", "Loud grinder", "open")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("find_customer", {"email": "nobody@example.net"}),
        ("list_orders", {"customer_id": "C-000"}),
        ("get_order", {"order_id": "A-0"}),
        ("track_shipment", {"order_id": "A-5012"}),
        ("check_stock", {"sku": "X"}),
        ("check_warranty", {"order_id": "A-5001", "sku": "GRN-10"}),
        ("change_address", {"order_id": "A-0", "address": "x"}),
        ("create_refund", {"order_id": "A-0", "cents": 1, "reason": "x"}),
        ("open_ticket", {"customer_id": "C-000", "subject": "x"}),
    ],
)
def test_wrong_arguments_are_answered_not_raised(
    connection: sqlite3.Connection, name: str, args: dict[str, Any]
) -> None:
    assert set(use(connection, name, **args)) == {"error"}


def test_there_are_ten_tools_with_described_parameters(connection: sqlite3.Connection) -> None:
    tools = [convert_to_openai_tool(tool)["function"] for tool in desk_tools(connection)]
    assert len({tool["name"] for tool in tools}) == 10
    for tool in tools:
        assert tool["description"]
        assert all(p.get("description") for p in tool["parameters"]["properties"].values())


def test_what_the_customers_ask_can_be_answered(connection: sqlite3.Connection) -> None:
    """By one tool each, with arguments that stand in their words."""
    needed: dict[str, list[tuple[str, dict[str, Any]] | None]] = {
        "ingrid": [
            ("track_shipment", {"order_id": "A-5001"}),
            ("check_warranty", {"order_id": "A-4710", "sku": "GRN-10"}),
            ("open_ticket", {"customer_id": "C-104", "subject": "It squeaks"}),
        ],
        "mateus": [
            ("list_refunds", {"customer_id": "C-117"}),
            ("change_address", {"order_id": "A-5012", "address": "Rua do Almada 210, Porto"}),
        ],
        "priya": [
            ("track_shipment", {"order_id": "A-5009"}),
            ("check_stock", {"sku": "GRN-10"}),
            None,
        ],
        "tom": [
            ("get_order", {"order_id": "A-4995"}),
            ("create_refund", {"order_id": "A-4995", "cents": 6900, "reason": "leaks"}),
        ],
    }
    assert [c.id for c in CONVERSATIONS] == list(needed)
    for conversation in CONVERSATIONS:
        for asked, call in zip(conversation.turns, needed[conversation.id], strict=True):
            if call is None:
                continue
            name, args = call
            said = f"{conversation.customer} {' '.join(conversation.turns)}"
            for key, value in args.items():
                assert str(value) in said or key in ("subject", "reason"), (asked, value)
            assert "error" not in use(connection, name, **args)
