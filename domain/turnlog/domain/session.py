"""The aggregate: a conversation as a stream of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, cast
from uuid import UUID

from eventsourcing.domain import BaseAggregate

from turnlog.domain.chain import GENESIS, new_nonce, new_salt
from turnlog.domain.compaction import CompactionResult, name_of
from turnlog.domain.errors import (
    CallNotAwaitedError,
    InvalidBoundaryError,
    InvalidEventError,
    InvalidSettingError,
    LegalHoldError,
    NaiveTimeError,
    NotRedactableError,
    SessionNotFoundError,
    TurnInProgressError,
    UnknownHoldError,
    shown,
)
from turnlog.domain.events import (
    SESSION_TOPIC,
    CallAbandoned,
    Compacted,
    ContentEvent,
    ContentRedacted,
    EventAppended,
    ExpiryMoved,
    HoldPlaced,
    HoldReleased,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
    TurnMarked,
    answer,
    call_key,
)
from turnlog.domain.ids import aggregate_id, check_id, is_utf8
from turnlog.domain.json_text import checked_json_text, from_json_text, plain_json_text, to_json_text
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.redaction import form_of
from turnlog.domain.state import AwaitedCall, OpenTurn, Ranges, RangeSet, SessionState, ranges_of

MAX_SPAN = timedelta(days=36_525)
"""The longest time to live and idle time: a hundred years, so that no expiry leaves the calendar."""


class Session(BaseAggregate[UUID]):
    """One continuous conversation. It records events and holds no text; `state` is all that changes.

    Its decisions take time and ids as arguments. Recorded times never go backwards: an event gets the later
    of `now` and the time of the event before it.
    """

    TOPIC = SESSION_TOPIC
    INITIAL_VERSION = 0

    # --- making one

    @classmethod
    def of_state(cls, id: UUID, state: SessionState) -> Self:  # noqa: A002 - the framework's name
        """The session as it is in this state, without anything to be saved."""
        session = cls.__new__(cls)
        session._id = id
        session.state = state
        session._pending_events = []
        return session

    @classmethod
    def open(
        cls,
        session_id: str,
        *,
        now: datetime,
        namespace: str = "",
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
        idle: timedelta | None = None,
        context: Mapping[str, str] | None = None,
    ) -> Self:
        """A new session. With `idle` its expiry is measured from the last user or assistant message."""
        check_id("Session id", session_id)
        if namespace:
            check_id("Namespace", namespace)
        if idle is not None and not timedelta(0) < idle <= MAX_SPAN:
            raise InvalidSettingError(
                f"`idle` must be positive and at most {MAX_SPAN.days:,} days, it is {idle}."
            )
        content = checked_json_text(dict(metadata), "metadata") if metadata else None
        if idle is not None:
            expires_at = now + idle
        opened = SessionOpened(
            originator_id=aggregate_id(session_id, namespace),
            originator_version=cls.INITIAL_VERSION,
            timestamp=_utc("now", now),
            session_id=session_id,
            namespace=namespace or None,
            expires_at=_utc_text("expires_at", expires_at),
            idle=None if idle is None else idle // timedelta(microseconds=1),
            content=content,
            salt=new_salt() if content is not None else None,
            nonce=new_nonce() if content is None else None,
            context=_context_text(context),
        )
        state = opened.state_after(None)
        vars(opened)["state"] = state.to_text()
        vars(opened)["chain"] = opened.linked_to(GENESIS)
        session = cls.of_state(opened.originator_id, opened.state_after(None))
        session.pending_events.append(opened)
        return session

    # --- state

    if TYPE_CHECKING:  # a real annotation would make the framework treat the class as a dataclass
        state: SessionState

    @property
    def version(self) -> int:
        """The version of the newest event; the opening event has version 0."""
        return self.state.version

    @version.setter
    def version(self, version: int) -> None:
        raise AttributeError(f"The version moves with an event, not to {version} by itself.")

    @property
    def created_on(self) -> datetime:
        """When the session was opened."""
        return self.state.created_on

    @property
    def modified_on(self) -> datetime:
        """When its newest event was recorded."""
        return self.state.modified_on

    @modified_on.setter
    def modified_on(self, modified_on: datetime) -> None:
        raise AttributeError(f"The time moves with an event, not to {modified_on} by itself.")

    @property
    def is_deleted(self) -> bool:
        """Whether the session was deleted."""
        return self.state.is_deleted

    def is_expired(self, at: datetime) -> bool:
        """Whether the session expired at this time or before it."""
        return self.state.expires_at is not None and self.state.expires_at <= at

    @property
    def recorded(self) -> tuple[StreamEvent, ...]:
        """The events that were recorded and are not saved yet."""
        return cast("tuple[StreamEvent, ...]", tuple(self.pending_events))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy that shares the state, which never changes in place."""
        copy = type(self).of_state(self.id, self.state)
        copy.pending_events.extend(self.pending_events)
        return copy

    # --- decisions

    def append(
        self, new: NewEvent, *, event_id: str, now: datetime, context: Mapping[str, str] | None = None
    ) -> StreamEvent:
        """Record a message, or an event of the application's own. Whether the id is taken the ledger says."""
        if new.message is not None:
            return self._append_message(new, new.message, event_id, now, context)
        return self._record(
            EventAppended,
            now,
            context,
            content=checked_json_text(dict(new.payload or {}), "payload"),
            salt=new_salt(),
            event_id=event_id,
            type=str(EventType.of(new.type)),
            branch=new.branch,
            occurred_at=_utc_text("occurred_at", new.occurred_at),
        )

    def compact(
        self,
        result: CompactionResult,
        *,
        boundary_id: str,
        summary: Sequence[tuple[str, NewEvent]],
        now: datetime,
        branch: str | None = None,
        covered_count: int | None = None,
        strategy: object = None,
        trigger: object = None,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
    ) -> list[StreamEvent]:
        """Record the boundary of a pass and, right behind it, the messages of its summary.

        Every message of the view as it is now must be named in `result`: as covered, pinned or preserved.
        """
        ranges, sealed = self._view_after(result, len(summary))
        boundary = self._record(
            Compacted,
            now,
            context,
            view=(ranges, sealed),
            event_id=boundary_id,
            pinned=[event.id for event in result.pinned_events] or None,
            summary=[event_id for event_id, _ in summary] or None,
            preserved=[event.id for event in result.preserved_events] or None,
            branch=branch,
            covered_count=len(result.covered_events) if covered_count is None else covered_count,
            tokens_saved=result.tokens_estimated_saved,
            strategy=None if strategy is None else name_of(strategy),
            trigger=None if trigger is None else name_of(trigger),
            occurred_at=_utc_text("occurred_at", occurred_at),
        )
        appended = [
            self.append(new, event_id=event_id, now=now, context=context) for event_id, new in summary
        ]
        return [boundary, *appended]

    def abandon(
        self,
        *,
        event_id: str,
        call_event_id: str,
        call_version: int,
        call_id: str,
        now: datetime,
        occurred_at: datetime | None = None,
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent:
        """Record that the awaited call of the message at `call_version` will get no result."""
        key = _storable(call_id)
        if not any((call.version, call.call_id) == (call_version, key) for call in self.state.awaited):
            raise CallNotAwaitedError(call_event_id, call_id)
        return self._record(
            CallAbandoned,
            now,
            context,
            event_id=event_id,
            call_event_id=call_event_id,
            call_version=call_version,
            call_id=key,
            occurred_at=_utc_text("occurred_at", occurred_at),
        )

    def begin_turn(
        self,
        turn_id: str,
        *,
        until: datetime,
        now: datetime,
        branch: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent:
        """Record that a turn runs on the branch; `TurnInProgressError` while another one does."""
        running = self._open_turn(branch)
        if running is not None and running.until > now:
            raise TurnInProgressError(running.turn_id, running.until, branch)
        return self._mark_turn(turn_id, branch, until, now, context)

    def renew_turn(
        self,
        turn_id: str,
        *,
        until: datetime,
        now: datetime,
        branch: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent | None:
        """Record that the turn still runs, when half of its time is over; nothing when it is not open."""
        running = self._open_turn(branch)
        if running is None or running.turn_id != turn_id or running.until - now > (until - now) / 2:
            return None
        return self._mark_turn(turn_id, branch, until, now, context)

    def end_turn(
        self,
        turn_id: str,
        *,
        now: datetime,
        branch: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent | None:
        """Record that the turn ended; nothing when it is not open."""
        running = self._open_turn(branch)
        if running is None or running.turn_id != turn_id:
            return None
        return self._mark_turn(turn_id, branch, None, now, context)

    def update_metadata(
        self, metadata: Mapping[str, Any], *, now: datetime, context: Mapping[str, str] | None = None
    ) -> StreamEvent:
        """Record other metadata, which replace the former ones as a whole."""
        content = checked_json_text(dict(metadata), "metadata")
        return self._record(MetadataUpdated, now, context, content=content, salt=new_salt())

    def extend(
        self,
        expires_at: datetime | None,
        *,
        now: datetime,
        again: bool = False,
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent | None:
        """Record another expiry, None for never; nothing when it is the expiry already, unless `again`."""
        if expires_at == self.state.expires_at and not again:
            return None
        return self._record(ExpiryMoved, now, context, expires_at=_utc_text("expires_at", expires_at))

    def hold(
        self, reason: str, *, by: str, now: datetime, context: Mapping[str, str] | None = None
    ) -> StreamEvent:
        """Record a legal hold. Several can be on at once, each named by the version of its event."""
        return self._record(HoldPlaced, now, context, reason=_said("reason", reason), by=_said("by", by))

    def release(
        self,
        placed_at: int | None = None,
        *,
        by: str,
        now: datetime,
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent:
        """Record that the hold placed at this version is off; without a version the only one that is on."""
        holds = self.state.holds
        if placed_at not in holds and (placed_at is not None or len(holds) != 1):
            raise UnknownHoldError(placed_at, holds)
        placed_at = holds[0] if placed_at is None else placed_at
        return self._record(HoldReleased, now, context, placed_at=placed_at, by=_said("by", by))

    def require_no_hold(self) -> None:
        """`LegalHoldError` while a legal hold is on."""
        if self.state.holds:
            raise LegalHoldError(self.state.holds)

    def redact(
        self,
        target: StreamEvent,
        *,
        event_id: str,
        reason: str,
        by: str,
        now: datetime,
        form: Mapping[str, Any] | None = None,
        left: Mapping[str, Any] | None = None,
        through: int | None = None,
        quoted: Sequence[int] = (),
        context: Mapping[str, str] | None = None,
    ) -> StreamEvent | None:
        """Record that the content of this event of the session is removed; nothing when it was already.

        Of a prompt `form` are figures that stay for good, `left` is what is left of it. `through` is the
        version of the event for whose sake it is redacted too, `quoted` are those of metadata that quote it.
        Raises `LegalHoldError`, and
        `NotRedactableError` when the event has no content of its own, or is the metadata that are in force.
        """
        if not isinstance(target, ContentEvent):
            raise NotRedactableError(target.originator_version, "it holds no content that could be removed")
        if target.is_redacted:
            return None
        if target.originator_version == self.state.metadata_version:
            raise NotRedactableError(
                target.originator_version, "it holds the metadata that are in force: update them first"
            )
        committed = target.commitment_value()
        if committed is None:
            raise NotRedactableError(target.originator_version, "it holds no content that could be removed")
        self.require_no_hold()
        content = None if left is None else to_json_text(dict(left), "left")
        salted: dict[str, Any] = {} if content is None else {"salt": new_salt()}
        return self._record(
            ContentRedacted,
            now,
            context,
            content=content,
            **salted,
            event_id=event_id,
            redacted_version=target.originator_version,
            commitment_kept=committed,
            reason=_said("reason", reason),
            by=_said("by", by),
            redacted_id=vars(target).get("event_id"),
            form=_form_text(target) if form is None else to_json_text(dict(form), "form"),
            through=through,
            quoted=[str(version) for version in quoted] or None,
        )

    def delete(
        self, *, now: datetime, keeps_content: bool = False, context: Mapping[str, str] | None = None
    ) -> StreamEvent | None:
        """Record the end of the session; nothing when it was deleted already.

        Raises `LegalHoldError`.
        """
        if self.is_deleted:
            return None
        self.require_no_hold()
        return self._record(
            SessionDeleted,
            now,
            context,
            keeps_content=1 if keeps_content else None,
            previous=self.state.head,
        )

    # --- how a decision becomes an event

    def _append_message(
        self,
        new: NewEvent,
        message: Message,
        event_id: str,
        now: datetime,
        context: Mapping[str, str] | None,
    ) -> StreamEvent:
        closes, hides = self._calls_met(message, new.branch)
        opens = [_storable(call.id or "") for call in message.tool_calls if call.awaiting]
        if opens:
            own = [call_id for call_id, hides_own in _plain_calls(message) if hides_own]
            hides += (f"{self.version + 1}:{call_id}" for call_id in own)
        return self._record(
            MessageAppended,
            now,
            context,
            content=message_content(message),
            salt=new_salt(),
            event_id=event_id,
            role=message.role.value,
            branch=new.branch,
            synthetic=1 if new.synthetic else None,
            occurred_at=_utc_text("occurred_at", new.occurred_at),
            opens=opens or None,
            closes=closes or None,
            hides=hides or None,
        )

    def _calls_met(self, message: Message, branch: str | None) -> tuple[list[str], list[str]]:
        """The awaited calls that the message answers, and those whose id it uses for calls of its own."""
        if not self.state.awaited:
            return [], []
        awaited = list(self.state.awaited)
        closes: list[str] = []
        for response in message.tool_responses:
            key = None if response.provisional else _newest_awaited(awaited, response.id, branch)
            if key is not None:
                answer(awaited, key)
                closes.append(key)
        asked = [call_id for call_id, hides_own in _plain_calls(message) if not hides_own]
        hides = [key for call_id in asked if (key := _newest_awaited(awaited, call_id, branch)) is not None]
        return closes, hides

    def _open_turn(self, branch: str | None) -> OpenTurn | None:
        return next((turn for turn in self.state.turns if turn.branch == branch), None)

    def _mark_turn(
        self,
        turn_id: str,
        branch: str | None,
        until: datetime | None,
        now: datetime,
        context: Mapping[str, str] | None,
    ) -> StreamEvent:
        return self._record(
            TurnMarked, now, context, turn_id=turn_id, branch=branch, until=_utc_text("until", until)
        )

    def _view_after(self, result: CompactionResult, summary_count: int) -> tuple[Ranges, bool]:
        """The ranges that the boundary at the next version names, and whether the last one is closed."""
        view, boundary = self.state.view, self.version + 1
        kept = [event.version for event in (*result.pinned_events, *result.preserved_events)]
        left = [event.version for event in result.covered_events]
        messages = sorted((*kept, *left))
        if len(set(messages)) < len(messages):
            raise InvalidBoundaryError("A pass names each message once: as covered, pinned or preserved.")
        held = RangeSet(view)
        if not all(version in held for version in messages):
            raise InvalidBoundaryError("A pass can only name messages of the current view.")
        if any(call.version in left for call in self.state.awaited):
            raise InvalidBoundaryError("A call that awaits its result keeps its message in the view.")
        summary = range(boundary + 1, boundary + 1 + summary_count)
        order = [event.version for event in result.pinned_events]
        order += summary
        order += (event.version for event in result.preserved_events)
        ranges = ranges_of(order, messages, view)
        newest = summary[-1] if summary else max(messages, default=-1)
        before = self.state.sealed and not summary
        return ranges, bool(ranges) and (before or ranges[-1][1] != newest)

    def _record(
        self,
        event_class: type[StreamEvent],
        now: datetime,
        context: Mapping[str, str] | None,
        *,
        view: tuple[Ranges, bool] | None = None,
        **values: Any,
    ) -> StreamEvent:
        """The event of this class as the next of the stream: stamped, anchored, linked, and pending."""
        before = self.state
        if before.is_deleted:
            raise SessionNotFoundError(str(self.id))
        event = event_class.recorded(
            originator_id=self.id,
            originator_version=before.version + 1,
            timestamp=max(_utc("now", now), before.modified_on),
            chain="",  # in its place among the fields, which are stored in their order
            context=_context_text(context),
            nonce=None if "salt" in values else new_nonce(),
            **values,
        )
        after = event.evolve(before)
        if view is not None:
            after = after.but(view=view[0], sealed=view[1])
        if view is not None or after.must_carry_at(event.originator_version):
            vars(event)["state"] = after.to_text()
        else:
            vars(event)["anchor"] = before.anchor
        vars(event)["chain"] = event.linked_to(before.head)
        self.state = event.stamped(after)  # what `mutate` does at a replay, where nothing is known yet
        self.pending_events.append(event)
        return event


def message_content(message: Message) -> str:
    """The message as its event keeps it: all but the role, as JSON text."""
    data = message.to_dict()
    del data["role"]
    if message.is_plain:  # nothing but declared text, which needs no check
        return plain_json_text(data)
    return checked_json_text(data, "message")


def _form_text(event: ContentEvent) -> str | None:
    """The form of a message without what it says, None when the event is none."""
    if not isinstance(event, MessageAppended):
        return None
    content = cast("dict[str, Any]", from_json_text(event.content or "{}"))
    return to_json_text(form_of(Message.model_validate({"role": event.role, **content})))


def _plain_calls(message: Message) -> list[tuple[str, bool]]:
    """The calls that await nothing, by id, and whether each hides an awaited one behind it in the message."""
    calls = [(_storable(call.id or ""), call.awaiting) for call in message.tool_calls]
    return [
        (call_id, (call_id, True) in calls[place:])
        for place, (call_id, awaiting) in enumerate(calls)
        if not awaiting
    ]


def _newest_awaited(awaited: Sequence[AwaitedCall], call_id: str | None, branch: str | None) -> str | None:
    """The key of the newest awaited call of this id on the branch."""
    wanted = (_storable(call_id or ""), branch)
    found = next((call for call in reversed(awaited) if (call.call_id, call.branch) == wanted), None)
    return call_key(found) if found else None


def _context_text(context: Mapping[str, str] | None) -> str | None:
    if not context:
        return None
    for name, value in context.items():
        if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(f"`context` maps text to text; {name!r} does not.")
    return to_json_text(dict(sorted(context.items())), "context")


def _utc_text(name: str, time: datetime | None) -> str | None:
    return None if time is None else _utc(name, time).isoformat()


def _utc(name: str, time: datetime) -> datetime:
    if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidEventError(f"`{name}` is a datetime with an offset, not {shown(time)}.")
    if time.tzinfo is None:
        raise NaiveTimeError(name, time)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise InvalidEventError(f"`{name}` {time.isoformat()} has no time in UTC.") from None


def _said(name: str, text: str) -> str:
    """The text, if it says anything and can be stored."""
    if not isinstance(text, str) or not text.strip() or not is_utf8(text):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidSettingError(f"`{name}` must be a text that says something, without lone surrogates.")
    return text


def _storable(call_id: str) -> str:
    """The id of a call in a form that has a UTF-8 encoding, whatever a provider sent."""
    return call_id.encode("utf-8", "backslashreplace").decode()


def fold(events: Iterable[StreamEvent], state: SessionState | None = None) -> SessionState | None:
    """The state after these events of one stream."""
    for event in events:
        state = event.state_after(state)
    return state
