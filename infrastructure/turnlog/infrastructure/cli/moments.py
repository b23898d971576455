"""Times as they are given on the command line, and as they are shown on it."""

from __future__ import annotations

from datetime import UTC, datetime

from turnlog.infrastructure.cli.failures import CommandUsageError

EXAMPLE = "2026-05-01T14:30+02:00"


def time_of(text: str) -> datetime | None:
    """The ISO time in UTC, which is meant too when it has no offset; None when it is none."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # an offset can lead out of the years that there are
        return None


def required_time(option: str, text: str) -> datetime:
    """The ISO time of an option, or `CommandUsageError`."""
    time = time_of(text)
    if time is None:
        raise CommandUsageError(f"{option} {text!r} is no time: give one as in {EXAMPLE}.")
    return time


def minute(time: datetime) -> str:
    """The time in UTC to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
