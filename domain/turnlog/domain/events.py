"""The domain events of a session, as they are stored.

They are the storage format: a TOPIC never changes, fields are only ever added and are None by default,
events are never upcast, and what is None is not stored. Fields are text, integers or lists of text, which any
mapper and transcoder of a host can keep; a message or a payload is one JSON text, `content`. What state,
turns and cuts need are fields of their own, so that removing a content breaks no projection.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform
from uuid import UUID

from eventsourcing.domain import (
    CanMutateAggregate,
    DomainEvent,
    OriginatorIDError,
    OriginatorVersionError,
)
from eventsourcing.utils import resolve_topic

from turnlog.domain.chain import GENESIS, chain_value, commitment
from turnlog.domain.errors import UnreadableEventError
from turnlog.domain.json_text import from_json_text, to_json_text
from turnlog.domain.messages import Role
from turnlog.domain.state import AwaitedCall, OpenTurn, SessionState

SESSION_TOPIC = "turnlog.domain.session:Session"

_LATE = ("state", "anchor")
"""Fields that are known last, and so are the last of what is stored."""

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True)
def _stored(cls: _Class) -> _Class:
    """Tells type checkers what the framework's metaclass did: the class is a frozen dataclass."""
    return cls


@_stored
class StreamEvent(DomainEvent, CanMutateAggregate[UUID]):
    """An event in the stream of a session: linked into the chain, and carrying or naming an anchor."""

    TOPIC: ClassVar[str]
    class_version: ClassVar[int] = 1
    """For good. Said here because the framework's mapper takes a microsecond to miss it."""
    IS_ENTRY: ClassVar[bool] = False
    """Whether readers see it as an entry of the log, with an id of its own."""

    _: KW_ONLY
    chain: str = ""
    state: str | None = None
    anchor: int | None = None
    context: str | None = None
    nonce: str | None = None
    """Random where an event has no salt, so that no two events have one chain value by chance."""

    @classmethod
    def recorded(cls, **fields: Any) -> Self:
        """The event with these fields, as its class makes it in more time; they are stored in this order."""
        if not fields.keys() <= cls.__dataclass_fields__.keys():
            raise TypeError(f"{cls.__name__} has no field {min(fields.keys() - cls.__dataclass_fields__)!r}.")
        held = {name: value for name, value in fields.items() if value is not None}
        event = object.__new__(cls)
        object.__setattr__(event, "__dict__", held)
        return event

    def __post_init__(self) -> None:
        attributes = vars(self)
        for name in [name for name, value in attributes.items() if value is None]:
            del attributes[name]

    def __getattr__(self, name: str) -> Any:
        """Nothing that was stored: `UnreadableEventError` for a field that must have been."""
        if name in type(self).__dataclass_fields__:
            raise UnreadableEventError(f"{type(self).TOPIC} without its field {name!r}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def require_whole(self) -> None:
        """`UnreadableEventError` when a field that must be stored is missing, or its state is in no form."""
        for name in type(self).__dataclass_fields__:
            getattr(self, name)
        self.state_carried()

    def evolve(self, state: SessionState) -> SessionState:
        """What this event changes in the state, its version, time and chain value aside."""
        return state

    def state_after(self, state: SessionState | None) -> SessionState:
        """The state behind this event; refuses an event that is not the next one of its stream."""
        if state is None or self.originator_version != state.version + 1:
            raise OriginatorVersionError(self.originator_version, state.version + 1 if state else 0)
        return self.stamped(self.evolve(state))

    def state_carried(self) -> SessionState | None:
        """The state behind this event as it carries it, None when it names an anchor instead."""
        if self.state is None:
            return None
        try:
            carried = SessionState.from_text(
                self.state, version=self.originator_version, modified_on=self.timestamp, head=self.chain
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise UnreadableEventError(f"the state in version {self.originator_version}: {error}") from error
        return carried.but(is_deleted=isinstance(self, SessionDeleted))

    def mutate(self, aggregate: Any) -> Any:
        """Move the aggregate on by this event, in one assignment; the opening event makes it."""
        if aggregate is None:
            return resolve_topic(SESSION_TOPIC).of_state(self.originator_id, self.state_after(None))
        if as_uuid(self.originator_id) != aggregate.id:
            raise OriginatorIDError(self.originator_id, aggregate.id)
        aggregate.state = self.state_after(aggregate.state)
        return aggregate

    def content_fields(self) -> tuple[str | None, str | None, str | None]:
        """Content, salt and stored commitment, where the event has them."""
        attributes = vars(self)
        return attributes.get("content"), attributes.get("salt"), attributes.get("commitment")

    def linked_to(self, previous: str) -> str:
        """The chain value that this event must have behind `previous`."""
        return chain_value(
            previous,
            as_uuid(self.originator_id).hex,
            self.originator_version,
            type(self).TOPIC,
            self.timestamp,
            vars(self),
            self.commitment_value() or "",
        )

    def commitment_value(self) -> str | None:
        """What the chain holds of the content, whether it is there or was removed."""
        content, salt, committed = self.content_fields()
        return committed if content is None or salt is None else commitment(salt, content)

    def stamped(self, state: SessionState) -> SessionState:
        """The state that `evolve` gave, at the version, time and chain value of this event."""
        return state.but(
            version=self.originator_version,
            modified_on=self.timestamp,
            head=self.chain,
            anchor=state.anchor if self.state is None else self.originator_version,
        )


@_stored
class ContentEvent(StreamEvent):
    """An event with content that can be removed.

    Then `content` is the marker of the redaction that removed it, and its commitment stands for what was
    there; the salt is gone.
    """

    _: KW_ONLY
    content: str | None = None
    salt: str | None = None
    commitment: str | None = None

    @property
    def is_redacted(self) -> bool:
        """Whether the content was removed, so that `content` is at most a marker."""
        return vars(self).get("commitment") is not None

    def redacted_by(self, redaction: ContentRedacted) -> Self:
        """What is stored of this event from now on: no content and no salt, but commitment and marker."""
        kept = {name: value for name, value in vars(self).items() if name not in _LATE and name != "salt"}
        kept["content"], kept["commitment"] = redaction.marker, redaction.commitment_kept
        event = type(self)(**kept)
        vars(event).update({name: value for name in _LATE if (value := vars(self).get(name)) is not None})
        return event


@_stored
class SessionOpened(ContentEvent):
    """The session began. `content` is its metadata; `expires_at` is ISO text, `idle` microseconds."""

    TOPIC = "turnlog.domain.events:SessionOpened"

    _: KW_ONLY
    session_id: str
    namespace: str | None = None
    expires_at: str | None = None
    idle: int | None = None

    def state_after(self, state: SessionState | None) -> SessionState:
        """The state that begins here."""
        if state is not None:
            raise OriginatorVersionError(self.originator_version, state.version + 1)
        opened = SessionState(
            version=self.originator_version,
            created_on=self.timestamp,
            modified_on=self.timestamp,
            head=GENESIS,
            expires_at=datetime.fromisoformat(self.expires_at) if self.expires_at else None,
            idle=None if self.idle is None else timedelta(microseconds=self.idle),
            metadata_version=0 if self.content is not None else None,
        )
        return self.stamped(opened)


@_stored
class MessageAppended(ContentEvent):
    """A message was said. `content` is the message without its role.

    `opens` are ids of its calls that await a result, `closes` (`version:id`) awaited calls that it answers,
    `hides` awaited calls whose id a call of its own uses that is answered before them.
    """

    TOPIC = "turnlog.domain.events:MessageAppended"
    IS_ENTRY = True

    _: KW_ONLY
    event_id: str
    role: str
    branch: str | None = None
    synthetic: int | None = None
    occurred_at: str | None = None
    opens: list[str] | None = None
    closes: list[str] | None = None
    hides: list[str] | None = None

    def evolve(self, state: SessionState) -> SessionState:
        """The message joins the view; user and assistant messages move an idle expiry."""
        state = state.with_message(self.originator_version)
        if self.opens or self.closes or self.hides:
            state = state.but(awaited=self._awaited(state.awaited))
        if state.idle is not None and self.moves_idle_expiry:
            state = state.but(expires_at=self.timestamp + state.idle)
        return state

    @property
    def moves_idle_expiry(self) -> bool:
        """Whether the user or the assistant said it, so that the time of an idle session begins anew."""
        return not self.synthetic and self.role in (Role.USER, Role.ASSISTANT)

    def _awaited(self, awaited: tuple[AwaitedCall, ...]) -> tuple[AwaitedCall, ...]:
        left = list(awaited)
        for key in self.closes or ():
            answer(left, key)
        left += (AwaitedCall(self.originator_version, call_id, self.branch) for call_id in self.opens or ())
        for key in self.hides or ():
            place = next(i for i, call in enumerate(left) if call_key(call) == key)
            left[place] = left[place]._replace(hidden_by=left[place].hidden_by + 1)
        return tuple(left)


@_stored
class EventAppended(ContentEvent):
    """An event of the application's own, or one of ours outside the view. `content` is its payload."""

    TOPIC = "turnlog.domain.events:EventAppended"
    IS_ENTRY = True

    _: KW_ONLY
    event_id: str
    type: str
    branch: str | None = None
    occurred_at: str | None = None


@_stored
class Compacted(StreamEvent):
    """The COMPACTION boundary: the ids that make up the view from then on. Its anchor has their versions."""

    TOPIC = "turnlog.domain.events:Compacted"
    IS_ENTRY = True

    _: KW_ONLY
    event_id: str
    pinned: list[str] | None = None
    summary: list[str] | None = None
    preserved: list[str] | None = None
    branch: str | None = None
    covered_count: int = 0
    tokens_saved: int = 0
    strategy: str | None = None
    trigger: str | None = None
    occurred_at: str | None = None

    def evolve(self, state: SessionState) -> SessionState:
        """The newest boundary is this one."""
        return state.but(boundary=self.originator_version)

    def state_after(self, state: SessionState | None) -> SessionState:
        """The state with the view that the boundary names."""
        after = super().state_after(state)
        carried = self.state_carried()
        return after.but(view=carried.view, sealed=carried.sealed) if carried else after


@_stored
class CallAbandoned(StreamEvent):
    """An awaited call will get no result: it no longer keeps its turn in the view."""

    TOPIC = "turnlog.domain.events:CallAbandoned"
    IS_ENTRY = True

    _: KW_ONLY
    event_id: str
    call_event_id: str
    call_version: int
    call_id: str
    occurred_at: str | None = None

    def evolve(self, state: SessionState) -> SessionState:
        """The call is awaited no longer."""
        left = tuple(
            call
            for call in state.awaited
            if (call.version, call.call_id) != (self.call_version, self.call_id)
        )
        return state.but(awaited=left)


@_stored
class MetadataUpdated(ContentEvent):
    """The session has other metadata, all of it in `content`."""

    TOPIC = "turnlog.domain.events:MetadataUpdated"

    def evolve(self, state: SessionState) -> SessionState:
        """The newest metadata are here."""
        return state.but(metadata_version=self.originator_version)


@_stored
class ExpiryMoved(StreamEvent):
    """The session expires at another time (ISO text), or never."""

    TOPIC = "turnlog.domain.events:ExpiryMoved"

    _: KW_ONLY
    expires_at: str | None = None

    def evolve(self, state: SessionState) -> SessionState:
        """The expiry as it was set."""
        return state.but(expires_at=datetime.fromisoformat(self.expires_at) if self.expires_at else None)


@_stored
class HoldPlaced(StreamEvent):
    """A legal hold is on: until it is released the session is neither deleted nor redacted."""

    TOPIC = "turnlog.domain.events:HoldPlaced"

    _: KW_ONLY
    reason: str
    by: str

    def evolve(self, state: SessionState) -> SessionState:
        """One more hold, named by the version that placed it."""
        return state.but(holds=(*state.holds, self.originator_version))


@_stored
class HoldReleased(StreamEvent):
    """The legal hold that was placed at version `placed_at` is off."""

    TOPIC = "turnlog.domain.events:HoldReleased"

    _: KW_ONLY
    placed_at: int
    by: str

    def evolve(self, state: SessionState) -> SessionState:
        """The other holds stay on."""
        return state.but(holds=tuple(hold for hold in state.holds if hold != self.placed_at))


@_stored
class ContentRedacted(ContentEvent):
    """The content of the event at `redacted_version` was removed; the store writes a marker over it.

    `commitment_kept` is the commitment that it leaves. `form` is JSON text: the parts of a message without
    what they said, or the figures of a prompt. `through` is the version of the event for whose sake this one
    was redacted too. `quoted` are versions of metadata that quoted the content when it was removed.
    `content` is what is left of a prompt.
    """

    TOPIC = "turnlog.domain.events:ContentRedacted"
    IS_ENTRY = True

    _: KW_ONLY
    event_id: str
    redacted_version: int
    commitment_kept: str
    reason: str
    by: str
    redacted_id: str | None = None
    form: str | None = None
    through: int | None = None
    quoted: list[str] | None = None

    def evolve(self, state: SessionState) -> SessionState:
        """The newest redaction is this one: texts that were read before it are not to be shown."""
        return state.but(redacted=self.originator_version)

    @property
    def marker(self) -> str:
        """What stands in the place of the content: when, why and by whom it was removed, as JSON text."""
        told = {
            "at": self.timestamp.isoformat(),
            "by": self.by,
            "reason": self.reason,
            "version": self.originator_version,
        }
        form = {} if self.form is None else {"form": from_json_text(self.form)}
        return to_json_text({"redacted": told, **form})


@_stored
class TurnMarked(StreamEvent):
    """A turn runs on its branch until this time (ISO text) at the latest; without a time it ended."""

    TOPIC = "turnlog.domain.events:TurnMarked"

    _: KW_ONLY
    turn_id: str
    branch: str | None = None
    until: str | None = None

    def evolve(self, state: SessionState) -> SessionState:
        """The turn is open or not; a turn that was open on the branch counts as dead."""
        turns = tuple(turn for turn in state.turns if turn.branch != self.branch)
        if self.until:
            turns = (*turns, OpenTurn(self.turn_id, datetime.fromisoformat(self.until), self.branch))
        return state.but(turns=turns)


@_stored
class SessionDeleted(StreamEvent):
    """The tombstone: the session is gone for every reader, and its id is not used again.

    With `keeps_content` (1) its events stay in the store as they are, hidden; otherwise the store overwrites
    each of them with an `EventErased`, and later removes those between version 0 and this one. So it always
    carries its state, and it may follow on an erased event of any earlier version. `previous` is the chain
    value in front of it, which can still be proven when the events are gone.
    """

    TOPIC = "turnlog.domain.events:SessionDeleted"

    _: KW_ONLY
    keeps_content: int | None = None
    previous: str | None = None

    def state_after(self, state: SessionState | None) -> SessionState:
        """The end of the stream, also behind erased events, of which some may be missing."""
        carried = self.state_carried() if state is not None and state.is_deleted else None
        return carried or super().state_after(state)

    def evolve(self, state: SessionState) -> SessionState:
        """Nothing is left to be shown."""
        return state.but(view=(), sealed=False, awaited=(), turns=(), is_deleted=True)


@_stored
class EventErased(StreamEvent):
    """What stands in the place of each event of a deleted session: nothing, at the time of the deletion.

    It is written over the stored event, never recorded by a session, and not part of the chain.
    """

    TOPIC = "turnlog.domain.events:EventErased"

    def state_after(self, state: SessionState | None) -> SessionState:
        """The state of a session of which nothing is known but that it was deleted."""
        if state is not None and self.originator_version <= state.version:
            raise OriginatorVersionError(self.originator_version, state.version + 1)
        return self.state_carried()

    def state_carried(self) -> SessionState:
        """The same at every version."""
        return SessionState(
            version=self.originator_version,
            created_on=self.timestamp,
            modified_on=self.timestamp,
            head=self.chain,
            anchor=self.originator_version,
            is_deleted=True,
        )


@_stored
class EventIdTaken(DomainEvent, CanMutateAggregate[UUID]):
    """The ledger entry of one event id in a store without rows of ours: an aggregate of this one event."""

    TOPIC = "turnlog.domain.events:EventIdTaken"

    _: KW_ONLY
    version: int
    """The version of the event that has the id."""


STREAM_EVENTS: tuple[type[StreamEvent], ...] = (
    SessionOpened,
    MessageAppended,
    EventAppended,
    Compacted,
    CallAbandoned,
    MetadataUpdated,
    ExpiryMoved,
    HoldPlaced,
    HoldReleased,
    ContentRedacted,
    TurnMarked,
    SessionDeleted,
    EventErased,
)
"""Every class that a stream of a session can hold."""


def as_uuid(originator_id: object) -> UUID:
    """The aggregate's id, whichever id type the store has."""
    return originator_id if isinstance(originator_id, UUID) else UUID(cast("str", originator_id))


def answer(awaited: list[AwaitedCall], key: str) -> None:
    """Take the answer to a call of this key into account: one that hides it is answered before it."""
    place = next((i for i, call in enumerate(awaited) if call_key(call) == key), None)
    if place is not None and awaited[place].hidden_by:
        awaited[place] = awaited[place]._replace(hidden_by=awaited[place].hidden_by - 1)
    elif place is not None:
        del awaited[place]


def call_key(call: AwaitedCall) -> str:
    """How `closes` and `hides` name an awaited call."""
    return f"{call.version}:{call.call_id}"
