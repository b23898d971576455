"""The errors of turnlog. Each is named after the rule that was broken and says what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


class TurnlogError(Exception):
    """The root of all errors that turnlog raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)


class InvalidPartError(TurnlogError):
    """A part of a message is malformed."""


class InvalidMessageError(TurnlogError):
    """A message is malformed: an unknown role, or fields of the wrong kind."""


class NotJsonError(TurnlogError):
    """A value cannot be kept as JSON. `path` names the place, as in `metadata.cost[0]`."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            f"{path} holds {found}, which JSON cannot say. Convert it first "
            "(numbers must be finite, keys must be text)."
        )
        self.path = path
        self.found = found


class InvalidIdError(TurnlogError):
    """An id of a session or an event has a form that is not allowed."""

    def __init__(self, kind: str, value: object, rule: str) -> None:
        super().__init__(f"{kind} {shown(value)} is not allowed: {rule}.")
        self.kind = kind
        self.value = value


class InvalidSettingError(TurnlogError):
    """A strategy, trigger, search or service was built with a value that is not allowed."""


class MissingExtraError(InvalidSettingError):
    """What was asked for needs a package that is not installed; `extra` brings it."""

    def __init__(self, extra: str, what: str = "This") -> None:
        super().__init__(f"{what} needs the extra `{extra}`: pip install 'turnlog[{extra}]'")
        self.extra = extra


class InvalidFilterError(TurnlogError):
    """A filter was built with values that are not allowed."""


class InvalidEventError(TurnlogError):
    """An event that was to be appended is malformed."""


class InvalidBoundaryError(TurnlogError):
    """A boundary names something that a boundary must not name."""


class NaiveTimeError(TurnlogError):
    """A time without an offset was given, so it is not known which instant is meant."""

    def __init__(self, name: str, value: datetime) -> None:
        super().__init__(f"{name} {value.isoformat()} has no offset. Give an aware time, as in UTC.")
        self.value = value


class BrokenBoundaryError(TurnlogError):
    """The newest boundary of a log names events that the log does not hold."""

    def __init__(self, boundary_id: str, missing: Sequence[str]) -> None:
        super().__init__(
            f"Boundary {boundary_id!r} names {', '.join(map(repr, missing[:5]))}"
            f"{' …' if len(missing) > 5 else ''}, which the log does not hold as messages. "
            "The log is incomplete: read it from its start."
        )
        self.boundary_id = boundary_id
        self.missing = tuple(missing)


class SessionNotFoundError(TurnlogError):
    """The session does not exist, was deleted, or belongs to somebody else."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {shown(session_id)} was not found. Create it first, or check its id.")
        self.session_id = session_id


class SessionIdUnavailableError(TurnlogError):
    """A session of this id cannot be created. The reason is not told."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session id {shown(session_id)} is not available. Choose another id.")
        self.session_id = session_id


class VersionConflictError(TurnlogError):
    """The session moved on since it was read; nothing was written."""

    def __init__(self, session_id: str, expected: int, actual: int) -> None:
        if expected == actual:
            reason = "did not change, but an aggregate given as `also` did"
        else:
            reason = f"is at version {actual}, not at the expected version {shown(expected)}"
        super().__init__(
            f"Session {shown(session_id)} {reason}. "
            "Nothing was written: load what changed again and repeat the command."
        )
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class UnknownEventError(TurnlogError):
    """The session holds no such event."""

    def __init__(self, session_id: str, event_id: str | int) -> None:
        named = ("at version ", "version") if isinstance(event_id, int) else ("", "id")
        super().__init__(
            f"Session {shown(session_id)} holds no event {named[0]}{shown(event_id)}. Check the {named[1]}."
        )
        self.session_id = session_id
        self.event_id = event_id


class UnknownVersionError(TurnlogError):
    """The session has not reached this version, or had not begun at this time."""

    def __init__(self, session_id: str, asked: object, newest: int) -> None:
        name = asked if isinstance(asked, str) else shown(asked)
        super().__init__(
            f"Session {shown(session_id)} has no version {name}. Its versions are 0 to {newest}."
        )
        self.session_id = session_id
        self.newest = newest


class LegalHoldError(TurnlogError):
    """A session under a legal hold is neither deleted nor redacted. `holds` are the versions of the holds."""

    def __init__(self, holds: Sequence[int]) -> None:
        super().__init__(
            "The session is under a legal hold, placed at version "
            f"{', '.join(map(str, holds))}. Nothing was removed: release the hold first."
        )
        self.holds = tuple(holds)


class UnknownHoldError(TurnlogError):
    """No such legal hold is on, or it was not said which of several is meant."""

    def __init__(self, placed_at: int | None, holds: Sequence[int]) -> None:
        on = f"on are those placed at version {', '.join(map(str, holds))}" if holds else "none is on"
        asked = "a legal hold" if placed_at is None else f"the legal hold placed at version {placed_at}"
        super().__init__(f"Cannot release {asked}: {on}. Name the version of one that is on.")
        self.placed_at = placed_at
        self.holds = tuple(holds)


class NotRedactableError(TurnlogError):
    """The event at this version has no content that a redaction could remove."""

    def __init__(self, version: int, why: str) -> None:
        super().__init__(f"The event at version {version} cannot be redacted: {why}. Nothing was removed.")
        self.version = version


class CallNotAwaitedError(TurnlogError):
    """The named tool call does not await a result."""

    def __init__(self, event_id: str, call_id: str) -> None:
        super().__init__(
            f"Call {call_id!r} of event {event_id!r} does not await a result: it was answered, "
            "abandoned, or never marked as awaiting."
        )
        self.event_id = event_id
        self.call_id = call_id


class TurnInProgressError(TurnlogError):
    """Another turn runs on this branch of the session; it counts as dead behind `until`."""

    def __init__(self, turn_id: str, until: datetime, branch: str | None = None) -> None:
        where = "this session" if branch is None else f"branch {shown(branch)} of this session"
        super().__init__(
            f"Another turn is in progress in {where}, until {until.isoformat(timespec='seconds')} at the "
            "latest. Nothing was stored: try again, or wait for it with wait=seconds."
        )
        self.turn_id = turn_id
        self.until = until
        self.branch = branch


def _restored(
    error_class: type[TurnlogError], args: tuple[object, ...], attributes: dict[str, object]
) -> TurnlogError:
    """The error as it was in the process that pickled it."""
    error = error_class.__new__(error_class, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def shown(value: object) -> str:
    """The value quoted, short enough for a message; also one that Python does not print."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


class InvalidPlanError(TurnlogError):
    """A compaction plan is malformed."""


class ForeignEventError(TurnlogError):
    """An event of a plan belongs to another session."""

    def __init__(self, event_id: str, session_id: str) -> None:
        super().__init__(f"Event {shown(event_id)} does not belong to session {shown(session_id)}.")
        self.event_id = event_id
        self.session_id = session_id


class UnknownPlanEventError(TurnlogError):
    """A plan names an event that the log does not hold."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"The plan names event {shown(event_id)}, which the log does not hold.")
        self.event_id = event_id


class DuplicateEventError(TurnlogError):
    """A plan would put an event into the log twice."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"The plan would put event {shown(event_id)} into the log twice.")
        self.event_id = event_id


class StorageError(TurnlogError):
    """The database cannot be used."""


class StorageClosedError(StorageError):
    """The service, or the application that it runs on, was closed."""

    def __init__(self) -> None:
        super().__init__("The service, or the application it runs on, was closed: make a new one.")


class StorageLockedError(StorageError):
    """The database stayed locked by others for longer than was waited. Nothing was written."""


class StorageUnavailableError(StorageError):
    """No connection to the database was to be had in time. Nothing was written."""


class StorageFullError(StorageError):
    """There was no room for what was to be written. Nothing was written."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"The database could not be written ({said}): its disk is full, over a limit, or fails. "
            "Nothing was written: make room, then repeat the call."
        )


class StorageReadOnlyError(StorageError):
    """The database was opened such that it can only be read. Nothing was written."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"The database can only be read here ({said}). Nothing was written: open it for writing, "
            "or write where that is possible."
        )


class StorageDeniedError(StorageError):
    """The database does not allow this user to do that. Nothing was written."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"The database does not allow that to this user ({said}). Nothing was written: "
            "ask its owner for the right, or connect as somebody else."
        )


class WriteUncertainError(StorageError):
    """A write broke off in the middle, and nothing was to be had that says what became of it."""

    def __init__(self, said: str = "") -> None:
        why = f" ({said})" if said else ""
        super().__init__(
            f"The connection to the database, or its disk, was lost while it wrote{why}: nobody knows "
            "whether that is stored. Repeat the call when the database is back: with event ids nothing is "
            "stored twice."
        )


class ErasureTargetError(StorageError):
    """What a deletion or a redaction is about is not in the log, or is another event by now.

    Nothing was erased for it. `aggregate_id` and `version` say which event it is.
    """

    def __init__(self, aggregate_id: str, version: int, what: str = "is not in the log") -> None:
        super().__init__(
            f"The event at version {version} of aggregate {aggregate_id} {what}, so it was not erased. "
            "`turnlog check` names the session: restore it from a backup and run a sweep, or delete it."
        )
        self.aggregate_id = aggregate_id
        self.version = version


class UnreadableEventError(StorageError):
    """A stored event is of a kind or a form that this version does not know, or is under another key.

    `version` and `aggregate_id` say which it is, `session_id` where the log still tells that.
    """

    def __init__(
        self,
        reason: str,
        aggregate_id: str | None = None,
        version: int | None = None,
        session_id: str | None = None,
    ) -> None:
        whose = f"aggregate {aggregate_id}" if session_id is None else f"session {shown(session_id)}"
        named = "A stored event" if version is None else f"The event at version {version} of {whose}"
        super().__init__(f"{named} {self._said(reason)}")
        self.reason = reason
        self.aggregate_id = aggregate_id
        self.version = version
        self.session_id = session_id

    def _said(self, reason: str) -> str:
        return (
            f"cannot be read ({reason}). A newer version of turnlog may have written it, it may be "
            "encrypted under another key, or it is damaged. Nothing was written: use that version, or see "
            "what `turnlog audit verify` says."
        )

    def of(self, session_id: str) -> UnreadableEventError:
        """The same error with the id of the session."""
        return type(self)(self.reason, self.aggregate_id, self.version, session_id)


class MissingEventError(UnreadableEventError):
    """The log does not have an event any more that it once had: its row was deleted, or lost with a file."""

    def __init__(
        self,
        reason: str = "it is gone",
        aggregate_id: str | None = None,
        version: int | None = None,
        session_id: str | None = None,
    ) -> None:
        super().__init__(reason, aggregate_id, version, session_id)

    def _said(self, reason: str) -> str:  # noqa: ARG002 - there is one reason
        return (
            "is gone: the log does not have it any more. Nothing was written: `turnlog check` names all that "
            "is gone; put it back from a backup."
        )


class UnsuitableMapperError(TurnlogError):
    """The application's mapper does not give back an event as it was, so nothing may be stored with it."""
