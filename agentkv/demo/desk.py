"""The support desk's database: a SQLite file with customers, orders, shipments and the rest.

Everything in it is fixed, down to "today", so that two runs over two fresh files see the same
rows and every tool result is the same text.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

TODAY = "2025-03-14"
"""The desk's own date. Rows that a tool writes carry it, so a run can be repeated exactly."""

SCHEMA = """
CREATE TABLE customers (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE,
    tier TEXT NOT NULL CHECK (tier IN ('standard', 'plus')), since TEXT NOT NULL
);
CREATE TABLE products (
    sku TEXT PRIMARY KEY, title TEXT NOT NULL, price_cents INTEGER NOT NULL,
    warranty_months INTEGER NOT NULL, stock INTEGER NOT NULL, restock_on TEXT
);
CREATE TABLE orders (
    id TEXT PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers(id),
    placed_on TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('processing', 'shipped', 'delivered', 'cancelled')),
    address TEXT NOT NULL
);
CREATE TABLE order_lines (
    order_id TEXT NOT NULL REFERENCES orders(id), sku TEXT NOT NULL REFERENCES products(sku),
    quantity INTEGER NOT NULL, paid_cents INTEGER NOT NULL, PRIMARY KEY (order_id, sku)
);
CREATE TABLE shipments (
    order_id TEXT PRIMARY KEY REFERENCES orders(id), carrier TEXT NOT NULL, tracking TEXT NOT NULL,
    last_seen TEXT NOT NULL, last_place TEXT NOT NULL, expected_on TEXT NOT NULL
);
CREATE TABLE refunds (
    id INTEGER PRIMARY KEY AUTOINCREMENT, order_id TEXT NOT NULL REFERENCES orders(id),
    cents INTEGER NOT NULL CHECK (cents > 0), reason TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'paid', 'rejected')), requested_on TEXT NOT NULL
);
CREATE TABLE tickets (
    id INTEGER PRIMARY KEY AUTOINCREMENT, customer_id TEXT NOT NULL REFERENCES customers(id),
    subject TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('open', 'closed')),
    opened_on TEXT NOT NULL
);
"""

CUSTOMERS = (
    ("C-104", "Ingrid Solberg", "ingrid.solberg@example.net", "plus", "2019-06-02"),
    ("C-117", "Mateus Carvalho", "mateus.c@example.org", "standard", "2022-11-18"),
    ("C-131", "Priya Raghavan", "priya.raghavan@example.com", "plus", "2020-01-27"),
    ("C-148", "Tom Ashworth", "t.ashworth@example.co.uk", "standard", "2024-08-05"),
)

PRODUCTS = (
    ("KET-02", "Gooseneck kettle 0.9 l", 6900, 24, 41, None),
    ("GRN-10", "Burr grinder Mk II", 18900, 24, 0, "2025-03-28"),
    ("ESP-40", "Espresso machine Piccola", 54900, 36, 6, None),
    ("FLT-100", "Paper filters, box of 100", 800, 0, 950, None),
    ("SCL-01", "Coffee scale with timer", 4500, 12, 17, None),
    ("MUG-07", "Stoneware mug, set of four", 3600, 0, 88, None),
)

ORDERS = (
    ("A-5001", "C-104", "2025-03-03", "shipped", "Storgata 14, 0184 Oslo"),
    ("A-4710", "C-104", "2024-05-21", "delivered", "Storgata 14, 0184 Oslo"),
    ("A-5012", "C-117", "2025-03-12", "processing", "Rua das Flores 88, 4050-262 Porto"),
    ("A-4988", "C-117", "2025-02-20", "delivered", "Rua das Flores 88, 4050-262 Porto"),
    ("A-4890", "C-131", "2025-01-09", "delivered", "12 Lake View Road, Bengaluru 560025"),
    ("A-5009", "C-131", "2025-03-10", "shipped", "12 Lake View Road, Bengaluru 560025"),
    ("A-4995", "C-148", "2025-02-26", "delivered", "3 Mill Lane, York YO1 9TX"),
    ("A-4951", "C-148", "2025-02-02", "cancelled", "3 Mill Lane, York YO1 9TX"),
)

ORDER_LINES = (
    ("A-5001", "ESP-40", 1, 54900),
    ("A-5001", "FLT-100", 2, 1600),
    ("A-4710", "GRN-10", 1, 18900),
    ("A-5012", "KET-02", 1, 6900),
    ("A-5012", "SCL-01", 1, 4500),
    ("A-4988", "MUG-07", 2, 7200),
    ("A-4890", "GRN-10", 1, 17900),
    ("A-5009", "FLT-100", 4, 3200),
    ("A-4995", "KET-02", 1, 6900),
    ("A-4951", "ESP-40", 1, 54900),
)

SHIPMENTS = (
    ("A-5001", "Nordpost", "NP48213377", "2025-03-11", "Gothenburg hub", "2025-03-15"),
    ("A-4710", "Nordpost", "NP40117264", "2024-05-25", "Delivered", "2024-05-25"),
    ("A-4988", "Iberia Express", "IX7719020", "2025-02-24", "Delivered", "2025-02-24"),
    ("A-4890", "BlueDart", "BD55120984", "2025-01-16", "Delivered", "2025-01-16"),
    ("A-5009", "BlueDart", "BD56300417", "2025-03-10", "Chennai port", "2025-03-13"),
    ("A-4995", "Royal Mail", "RM20094417GB", "2025-03-01", "Delivered", "2025-03-01"),
)

REFUNDS = (
    ("A-4951", 54900, "order cancelled", "paid", "2025-02-03"),
    ("A-4988", 1800, "one mug broken", "pending", "2025-03-05"),
)

TICKETS = (
    ("C-131", "Grinder is louder than before", "open", "2025-03-02"),
    ("C-148", "Kettle leaks at the handle", "closed", "2025-03-06"),
)


def fill(path: Path) -> None:
    """Create the desk's database at `path` (which must not exist yet) and fill it."""
    if path.exists():
        raise FileExistsError(f"{path} exists already; the desk starts from an empty file.")
    connection = sqlite3.connect(path)
    try:
        with connection:
            connection.executescript(SCHEMA)
            insert = connection.executemany
            insert("INSERT INTO customers VALUES (?, ?, ?, ?, ?)", CUSTOMERS)
            insert("INSERT INTO products VALUES (?, ?, ?, ?, ?, ?)", PRODUCTS)
            insert("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ORDERS)
            insert("INSERT INTO order_lines VALUES (?, ?, ?, ?)", ORDER_LINES)
            insert("INSERT INTO shipments VALUES (?, ?, ?, ?, ?, ?)", SHIPMENTS)
            insert(
                "INSERT INTO refunds (order_id, cents, reason, status, requested_on)"
                " VALUES (?, ?, ?, ?, ?)",
                REFUNDS,
            )
            insert(
                "INSERT INTO tickets (customer_id, subject, status, opened_on) VALUES (?, ?, ?, ?)",
                TICKETS,
            )
    finally:
        connection.close()


def connect(path: Path) -> sqlite3.Connection:
    """Open the desk's database; rows come back by column name, foreign keys are enforced."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection
