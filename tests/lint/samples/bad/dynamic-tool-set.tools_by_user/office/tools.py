TOOLS = [
    {"name": "read_calendar", "description": "Reads a day.", "input_schema": {"type": "object"}},
    {"name": "book_room", "description": "Books a room.", "input_schema": {"type": "object"}},
    {"name": "pay_invoice", "description": "Pays an invoice.", "input_schema": {"type": "object"}},
]
