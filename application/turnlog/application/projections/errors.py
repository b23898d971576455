"""What can be wrong with a read model."""

from __future__ import annotations

from typing import Final

from turnlog.domain.errors import StorageError, TurnlogError

LOST: Final = 0
"""What stands for the rule of rows that are gone: their tables were dropped, and are empty if made again."""


class ReadModelOutdatedError(StorageError):
    """The rows of a read model are gone (`found` is 0), or were made by another rule than this code's.

    Nothing was read or written.
    """

    def __init__(self, name: str, found: int, expected: int) -> None:
        what = (
            "is gone: its tables were dropped"
            if found == LOST
            else f"was made by its rule {found}, this version of turnlog has rule {expected}"
        )
        super().__init__(
            f"The read model {name!r} {what}. Run `turnlog rebuild {name}`: the log has all that it needs."
        )
        self.name = name
        self.found = found
        self.expected = expected


class ReadModelBehindError(TurnlogError):
    """A read model did not get as far as was waited for, in the time that was given."""

    def __init__(self, name: str, position: int | None, waited_for: int | None, seconds: float) -> None:
        super().__init__(
            f"The read model {name!r} is at position {position}, not at {waited_for} after "
            f"{seconds:g} seconds. Check that a runner follows the log, or wait longer."
        )
        self.name = name
        self.position = position
        self.waited_for = waited_for


class ProjectionStoppedError(TurnlogError):
    """A runner gave up: the handler of an event failed, and would again. `__cause__` is what it raised."""

    def __init__(self, name: str, position: int | None) -> None:
        where = "in front of the first position" if position is None else f"behind position {position}"
        super().__init__(
            f"The projection {name!r} stopped {where}: the next event could not be "
            "processed. Nothing of it was recorded: correct the cause, and start the runner again."
        )
        self.name = name
        self.position = position


class NoSubscriptionsError(StorageError):
    """The recorder of an application tells nobody what it stores, as the framework's for SQLite."""

    def __init__(self, application: str) -> None:
        super().__init__(
            f"The recorder of {application} has no subscriptions, so nothing can follow its log. On SQLite "
            "put SessionRows or SqliteSubscriptions of turnlog.infrastructure.sqlite in front of it, or set "
            "APPLICATION_RECORDER_TOPIC=turnlog.infrastructure.sqlite:SqliteSessionRecorder."
        )
        self.application = application


class UnboundFollowerError(TurnlogError):
    """A follower was not told whose log it follows."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The follower {name!r} needs the log to name sessions: run it by SupervisedRunner or "
            "SessionProjectionRunner, or call bind(recorder, mapper) first."
        )
        self.name = name
