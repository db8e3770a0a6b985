from datetime import datetime, timezone
from functools import lru_cache


@lru_cache(maxsize=1)
def release_day() -> str:
    return datetime.now(timezone.utc).date().isoformat()
