"""When a failed request is sent again, and after how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from turnlog.domain.guards import require_number

TEMPORARY = frozenset((408, 409, 429))


def is_temporary(status: int) -> bool:
    """Whether the same request may succeed later: 408, 409, 429 and 5xx."""
    return status in TEMPORARY or status >= 500


@dataclass(frozen=True)
class RetryPolicy:
    """How often and when a request is sent again. Times are seconds.

    The n-th pause is random between half and the whole of `backoff` times 2 to the power of n - 1, at most
    `max_backoff`. A server that says how long to wait is waited for, unless that is more than
    `max_retry_after`: then nothing is sent again.
    """

    retries: int = 3
    backoff: float = 0.5
    max_backoff: float = 8.0
    max_retry_after: float = 60.0

    def __post_init__(self) -> None:
        for name in ("retries", "backoff", "max_backoff", "max_retry_after"):
            require_number(f"`{name}` of a RetryPolicy", getattr(self, name))

    def pause(self, failures: int, retry_after: float | None, chance: float) -> float | None:
        """Seconds to wait after so many failures, None when it is enough; `chance` is between 0 and 1."""
        if failures > self.retries or (retry_after or 0) > self.max_retry_after:
            return None
        longest = min(self.backoff * 2.0 ** min(failures - 1, 30), self.max_backoff)
        return max(longest * (0.5 + chance / 2), retry_after or 0)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """The seconds that a response asks to wait, None when it does not; names of headers are in lower case."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        seconds = _number(headers.get(name), per_second)
        if seconds is not None:
            return seconds
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def _number(text: str | None, per_second: int) -> float | None:
    try:
        value = float(text or "") / per_second
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
