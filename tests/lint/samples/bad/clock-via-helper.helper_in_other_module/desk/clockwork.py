from datetime import datetime, timezone


def stamp() -> str:
    return datetime.now(timezone.utc).isoformat()
