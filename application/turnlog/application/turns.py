"""Use case: writing a turn of a model, one at a time on each branch of a session."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from turnlog.application.appending import Appendable
from turnlog.application.batch import Batch
from turnlog.application.context import merged_context
from turnlog.application.core import ServiceCore
from turnlog.application.writing import SessionKey
from turnlog.domain.errors import (
    CallNotAwaitedError,
    TurnInProgressError,
    UnknownEventError,
    VersionConflictError,
)
from turnlog.domain.guards import require_kind
from turnlog.domain.ids import check_id, own_event_id
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallPart
from turnlog.domain.session import Session
from turnlog.domain.state import AwaitedCall, SessionState
from turnlog.domain.view import View


class TurnStep(StrEnum):
    """What a write means to the mark of its turn."""

    BEGIN = "begin"
    GO_ON = "go on"
    END = "end"


@dataclass(frozen=True)
class TurnMark:
    """The mark of a running turn. It counts as dead when it was not renewed for as long as the lease."""

    turn_id: str
    branch: str | None = None
    lease: timedelta = timedelta(minutes=1)


@dataclass(frozen=True)
class CallReference:
    """An awaited call, by the event that asks for it and its own id.

    Where it was found in a session it also says what is called: the name of the tool, and the arguments as
    the model wrote them. References are equal when they mean the same call.
    """

    event_id: str
    call_id: str
    name: str | None = field(default=None, compare=False)
    arguments: str | None = field(default=None, compare=False)

    @classmethod
    def of(cls, event_id: str, call: ToolCallPart) -> CallReference:
        """The reference to a call of the event."""
        return cls(event_id, call.id or "", call.name, call.arguments)


@dataclass(frozen=True)
class TurnWrite:
    """What was stored, the version behind it, whether the turn has its mark, and which calls are awaited."""

    events: tuple[SessionEvent, ...]
    version: int
    is_marked: bool
    awaited: tuple[AwaitedCall, ...] = ()


class Turns(ServiceCore):
    """The use cases of who runs turns: a message, what belongs to it and the mark are one write."""

    def record_turn(
        self,
        session_id: str,
        events: Sequence[Appendable],
        mark: TurnMark,
        step: TurnStep = TurnStep.GO_ON,
        *,
        expected_version: int | None = None,
        answers: CallReference | None = None,
        abandons: CallReference | None = None,
        context: Mapping[str, str] | None = None,
    ) -> TurnWrite:
        """Append the events of a turn and mark the turn, in one write.

        The events come first, so that their versions are known: those behind the expected one. `BEGIN`
        raises `TurnInProgressError` while another turn runs on the branch. `GO_ON` renews the mark when half
        of its lease is over. A turn that lost its mark still stores what it has; the answer says so. With
        `answers` the call must await its result, with `abandons` waiting for it is given up: else
        `CallNotAwaitedError`. With an `expected_version` that is not the session's, `VersionConflictError`.
        """
        key = self._key(session_id)
        require_kind("`mark`", mark, TurnMark, "a TurnMark")
        require_kind("`step`", step, TurnStep, "a TurnStep")
        for call in (answers, abandons):
            if call is not None:
                require_kind("A call", call, CallReference, "a CallReference, as `awaited_calls` gives it")
        batch = Batch(key, NewEvent.each_of(events), None, merged_context(context))
        asked_at = self._version_of_call(key, answers or abandons)
        tries = itertools.count()

        def decide(session: Session) -> None:
            now = self._now()
            if expected_version not in (None, session.version):  # also when all of it would be repeats
                raise VersionConflictError(session_id, expected_version or 0, session.version)
            if answers is not None and not _awaits(session.state, asked_at, answers.call_id):
                raise CallNotAwaitedError(answers.event_id, answers.call_id)
            look_up = next(tries) > 0 or not self._writer.ledger.atomic
            batch.record(session, now, self._locate, look_up=look_up)
            if abandons is not None:
                session.abandon(
                    event_id=own_event_id(session.version + 1, secrets.token_hex(10)),
                    call_event_id=abandons.event_id,
                    call_version=asked_at,
                    call_id=abandons.call_id,
                    now=now,
                    context=batch.context,
                )
            self._mark(session, mark, step, now, batch.context)

        session = self._writer.write(key, decide, at_version=expected_version)
        stored = batch.stored(lambda version: self._streams.entry_at(key.aggregate_id, session_id, version))
        is_marked = any(
            turn.turn_id == mark.turn_id for turn in session.state.turns if turn.branch == mark.branch
        )
        return TurnWrite(stored, session.version, is_marked or step is TurnStep.END, session.state.awaited)

    def view_for_turn(
        self, session_id: str, *, branch: str | None = None, turn_id: str | None = None
    ) -> View:
        """The view now; `TurnInProgressError` while another turn than this one runs on the branch."""
        key = self._key(session_id)
        state = self._writer.current(key)
        for turn in state.turns:
            if turn.branch == branch and turn.turn_id != turn_id and turn.until > self._now():
                raise TurnInProgressError(turn.turn_id, turn.until, turn.branch)
        return self._streams.view(key.aggregate_id, session_id, state)

    def count_tokens(self, message: SessionEvent | Message) -> int:
        """What a message costs, as this service estimates it; an event without a message costs nothing."""
        require_kind("`message`", message, (Message, SessionEvent), "a message, or an event of a log")
        counts = self._token_counts()
        return counts.of_message(message) if isinstance(message, Message) else counts.of_event(message)

    def awaits(self, session_id: str, call: CallReference) -> bool:
        """Whether the call awaits its result. Raises `UnknownEventError`."""
        key = self._key(session_id)
        require_kind("`call`", call, CallReference, "a CallReference, as `awaited_calls` gives it")
        return _awaits(self._writer.current(key), self._version_of_call(key, call), call.call_id)

    def awaited_calls(self, session_id: str, *, at_version: int | None = None) -> tuple[CallReference, ...]:
        """The calls that await their results, oldest first: now, or behind the event of a version. Each says
        what is called with which arguments, for whoever decides.

        Raises `UnknownVersionError`.
        """
        key = self._key(session_id)
        state = self._writer.current(key)
        if at_version is not None:
            state = self._state_at(key, state, at_version, None)
        found: list[CallReference] = []
        for version in dict.fromkeys(call.version for call in state.awaited):
            entry = self._streams.entry_at(key.aggregate_id, session_id, version)
            for part in entry.tool_calls if entry else ():
                if part.awaiting and _awaits(state, version, part.id or ""):
                    found.append(CallReference.of(entry.id if entry else "", part))
        return tuple(found)

    def events_by_id(self, session_id: str, event_ids: Sequence[str]) -> Mapping[str, SessionEvent]:
        """The entries of the log with these ids; ids that it does not hold are left out."""
        key = self._key(session_id)
        require_kind("`event_ids`", event_ids, Sequence, "a list of ids")
        self._writer.current(key)
        versions = {
            name: version
            for name in event_ids
            if (version := self._locate(key, check_id("Event id", name))) is not None
        }
        entries = (
            self._streams.entry_at(key.aggregate_id, session_id, version) for version in versions.values()
        )
        return {entry.id: entry for entry in entries if entry is not None}

    def rest_of_turn(
        self, session_id: str, event_id: str, *, at_version: int | None = None
    ) -> tuple[tuple[SessionEvent, ...], bool]:
        """What was said behind this message on its branch, up to the next message of a user, and whether
        there is none of a user yet. System messages and summaries are left out, covered ones are not.

        Raises `UnknownEventError`.
        """
        key = self._key(session_id)
        check_id("Event id", event_id)
        state = self._writer.current(key)
        version = self._locate(key, event_id)
        first = None if version is None else self._streams.entry_at(key.aggregate_id, session_id, version)
        if first is None:
            raise UnknownEventError(session_id, event_id)
        found: list[SessionEvent] = []
        upto = state.version if at_version is None else at_version
        for entry in self._streams.entries(key.aggregate_id, session_id, after=first.version, upto=upto):
            if entry.message is None or entry.branch != first.branch or entry.synthetic:
                continue
            if entry.role is Role.USER:
                return tuple(found), False
            if entry.role is not Role.SYSTEM:
                found.append(entry)
        return tuple(found), True

    def _version_of_call(self, key: SessionKey, call: CallReference | None) -> int:
        if call is None:
            return -1
        self._writer.current(key)
        version = self._locate(key, call.event_id)
        if version is None:
            raise UnknownEventError(key.session_id, call.event_id)
        return version

    @staticmethod
    def _mark(
        session: Session, mark: TurnMark, step: TurnStep, now: datetime, context: Mapping[str, str]
    ) -> None:
        until = now + mark.lease
        match step:
            case TurnStep.BEGIN:
                session.begin_turn(mark.turn_id, branch=mark.branch, until=until, now=now, context=context)
            case TurnStep.GO_ON:
                session.renew_turn(mark.turn_id, branch=mark.branch, until=until, now=now, context=context)
            case TurnStep.END:
                session.end_turn(mark.turn_id, branch=mark.branch, now=now, context=context)


def call_name(call_id: str) -> str:
    """The id of a call as the state of a session has it."""
    return call_id.encode("utf-8", "backslashreplace").decode()


def _awaits(state: SessionState, version: int, call_id: str) -> bool:
    return any((call.version, call.call_id) == (version, call_name(call_id)) for call in state.awaited)
