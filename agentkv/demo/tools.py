"""The desk's ten tools: real functions over the database, as LangChain tools.

A tool answers with one line of compact JSON. What a caller got wrong (no such order, an amount
above what was paid) comes back as `{"error": ...}`: a model can read that and go on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Annotated, Any

from langchain_core.tools import StructuredTool

from agentkv.demo.desk import TODAY

OrderId = Annotated[str, "Order number, such as A-5001."]
CustomerId = Annotated[str, "Customer number, such as C-104."]
Sku = Annotated[str, "Article number, such as GRN-10."]


class DeskTools:
    """The functions behind the tools. Each method runs SQL on `connection` and returns JSON."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def find_customer(self, email: Annotated[str, "The address on the account."]) -> str:
        """Look up a customer account by its email address. Returns number, name and tier."""
        row = self._one(
            "SELECT id, name, tier, since FROM customers WHERE email = ?", email.lower()
        )
        return _answer(row, f"no account with the address {email}")

    def list_orders(self, customer_id: CustomerId) -> str:
        """List a customer's orders, newest first, with date, status and total in cents."""
        rows = self._all(
            "SELECT o.id, o.placed_on, o.status, SUM(l.paid_cents) AS cents FROM orders o"
            " JOIN order_lines l ON l.order_id = o.id WHERE o.customer_id = ?"
            " GROUP BY o.id ORDER BY o.placed_on DESC",
            customer_id,
        )
        return _dump({"orders": rows}) if rows else _error(f"no orders for {customer_id}")

    def get_order(self, order_id: OrderId) -> str:
        """Get one order: status, delivery address, and each article with quantity and price."""
        row = self._one("SELECT id, status, placed_on, address FROM orders WHERE id = ?", order_id)
        if row is None:
            return _error(f"no order {order_id}")
        row["lines"] = self._all(
            "SELECT sku, quantity AS qty, paid_cents AS cents FROM order_lines WHERE order_id = ?"
            " ORDER BY sku",
            order_id,
        )
        return _dump(row)

    def track_shipment(self, order_id: OrderId) -> str:
        """Where the parcel of an order was last seen, and the day it is expected."""
        row = self._one(
            "SELECT carrier, tracking, last_seen, last_place, expected_on FROM shipments"
            " WHERE order_id = ?",
            order_id,
        )
        return _answer(row, f"order {order_id} has not left the warehouse")

    def check_stock(self, sku: Sku) -> str:
        """How many of an article are in stock, its price in cents, and the next delivery."""
        row = self._one(
            "SELECT title, price_cents, stock, restock_on FROM products WHERE sku = ?", sku
        )
        return _answer(row, f"no article {sku}")

    def check_warranty(self, order_id: OrderId, sku: Sku) -> str:
        """Whether an article of an order is still under warranty, and until which day."""
        row = self._one(
            "SELECT p.title, date(o.placed_on, '+' || p.warranty_months || ' months') AS until,"
            " date(o.placed_on, '+' || p.warranty_months || ' months') >= ? AS valid"
            " FROM orders o JOIN order_lines l ON l.order_id = o.id JOIN products p ON p.sku = l.sku"
            " WHERE o.id = ? AND p.sku = ?",
            TODAY,
            order_id,
            sku,
        )
        if row is not None:
            row["valid"] = bool(row["valid"])
        return _answer(row, f"{sku} is not part of order {order_id}")

    def list_refunds(self, customer_id: CustomerId) -> str:
        """List a customer's refunds with order, amount in cents, status and reason."""
        rows = self._all(
            "SELECT r.order_id, r.cents, r.status, r.reason FROM refunds r"
            " JOIN orders o ON o.id = r.order_id WHERE o.customer_id = ? ORDER BY r.id",
            customer_id,
        )
        return _dump({"refunds": rows})

    def create_refund(
        self,
        order_id: OrderId,
        cents: Annotated[int, "Amount in cents."],
        reason: Annotated[str, "Why, in the customer's words."],
    ) -> str:
        """Request a refund for an order, at most what was paid and not yet refunded."""
        paid = self._one(
            "SELECT o.status, SUM(l.paid_cents) - (SELECT COALESCE(SUM(cents), 0) FROM refunds"
            " WHERE order_id = o.id AND status != 'rejected') AS open FROM orders o"
            " JOIN order_lines l ON l.order_id = o.id WHERE o.id = ? GROUP BY o.id",
            order_id,
        )
        if paid is None:
            return _error(f"no order {order_id}")
        if not 0 < cents <= paid["open"]:
            return _error(f"amount must be between 1 and {paid['open']} cents")
        with self.connection:
            cursor = self.connection.execute(
                "INSERT INTO refunds (order_id, cents, reason, status, requested_on)"
                " VALUES (?, ?, ?, 'pending', ?)",
                (order_id, cents, reason, TODAY),
            )
        return _dump({"refund": cursor.lastrowid, "cents": cents, "status": "pending"})

    def change_address(
        self, order_id: OrderId, address: Annotated[str, "Street, number, postcode and city."]
    ) -> str:
        """Change the delivery address of an order that has not been shipped yet."""
        row = self._one("SELECT status FROM orders WHERE id = ?", order_id)
        if row is None:
            return _error(f"no order {order_id}")
        if row["status"] != "processing":
            return _error(f"order {order_id} is {row['status']}; its address is final")
        with self.connection:
            self.connection.execute(
                "UPDATE orders SET address = ? WHERE id = ?", (address, order_id)
            )
        return _dump({"order": order_id, "changed": True})

    def open_ticket(
        self, customer_id: CustomerId, subject: Annotated[str, "One line for a colleague."]
    ) -> str:
        """Hand the case to a human colleague. Returns the ticket's number."""
        if self._one("SELECT id FROM customers WHERE id = ?", customer_id) is None:
            return _error(f"no customer {customer_id}")
        with self.connection:
            cursor = self.connection.execute(
                "INSERT INTO tickets (customer_id, subject, status, opened_on)"
                " VALUES (?, ?, 'open', ?)",
                (customer_id, subject, TODAY),
            )
        return _dump({"ticket": cursor.lastrowid, "status": "open", "reply_within_hours": 24})

    def _one(self, query: str, *values: object) -> dict[str, Any] | None:
        row = self.connection.execute(query, values).fetchone()
        return None if row is None else dict(row)

    def _all(self, query: str, *values: object) -> list[dict[str, Any]]:
        return [dict(row) for row in self.connection.execute(query, values)]


def desk_tools(connection: sqlite3.Connection) -> list[StructuredTool]:
    """The ten tools over one open database, in the order in which the desk lists them."""
    desk = DeskTools(connection)
    functions: tuple[Callable[..., str], ...] = (
        desk.find_customer,
        desk.list_orders,
        desk.get_order,
        desk.track_shipment,
        desk.check_stock,
        desk.check_warranty,
        desk.list_refunds,
        desk.create_refund,
        desk.change_address,
        desk.open_ticket,
    )
    return [StructuredTool.from_function(function) for function in functions]


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _error(text: str) -> str:
    return _dump({"error": text})


def _answer(row: dict[str, Any] | None, missing: str) -> str:
    return _error(missing) if row is None else _dump(row)
