"""Whether a stream is exactly what was recorded, event by event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from eventsourcing.persistence import StoredEvent

from turnlog.application.audit.findings import NO_EVENT, FindingKind
from turnlog.application.audit.stored import BrokenRowError, StoredStreams
from turnlog.application.ports import RecordedHead
from turnlog.domain.chain import GENESIS
from turnlog.domain.events import (
    Compacted,
    ContentEvent,
    ContentRedacted,
    EventAppended,
    EventErased,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    StreamEvent,
)
from turnlog.domain.ids import aggregate_id as id_of_session
from turnlog.domain.state import SessionState

Report = Callable[[FindingKind, int | None, str], None]
"""Told what is wrong, at which version."""

_HOLDERS = (MessageAppended, EventAppended, MetadataUpdated)
"""Events that are never without a content."""

_LEFT = 2
"""Stubs of a session that a purge may leave."""

_NAMED = 10
"""Missing events in a row that are named one by one."""


@dataclass
class StreamCheck:
    """Goes through one stream from its first event on and reports what is not as it was recorded.

    `exported` are chain values that the stream had at versions of former heads.
    """

    aggregate_id: UUID
    report: Report
    stored: StoredStreams
    exported: Mapping[int, str] = field(default_factory=dict[int, str])
    is_session: bool = True

    def __post_init__(self) -> None:
        self.events = 0
        self.began_at: RecordedHead | None = None
        self.tombstone: SessionDeleted | None = None
        self.proven: set[int] = set()
        self.refuted: set[int] = set()
        self.unerased: list[int] = []
        self._version = -1
        self._head = GENESIS
        self._links: frozenset[str] | None = frozenset((GENESIS,))
        self._doubted: int | None = None
        self._found: set[int] = set()
        self._stubs: list[EventErased] = []
        self._real: list[int] = []
        self._absent: dict[int, ContentEvent] = {}
        self._fold = _Fold(self._report)

    def run(self, recorded: Callable[[], RecordedHead | None]) -> None:
        """Check every row; `recorded` says what is recorded as the newest event, None if nothing is.

        It is asked again when a row is newer, because others may append meanwhile.
        """
        head = self.began_at = recorded()
        newest = None if head is None else head.version
        chains = {} if head is None else {head.version: head.chain}
        for version, row in self.stored.rows(self.aggregate_id, newest):
            if type(version) is not int or version < 0:
                self.report(FindingKind.INSERTED, None, f"a row has {version!r} for its version")
                continue
            self.events += 1
            if newest is not None and version > newest and (moved := recorded()) is not None:
                newest, chains[moved.version] = moved.version, moved.chain
            if newest is not None and version > newest:
                self._report(FindingKind.INSERTED, version, "it is newer than the newest that was recorded")
            elif self.tombstone is not None:
                self._report(FindingKind.INSERTED, version, "it stands behind the end of the session")
            else:
                self._row(version, row)
                if self._head != chains.get(version, self._head):
                    detail = "its chain value is not the one recorded as the newest"
                    self._report(FindingKind.HEAD, version, detail)
        if head is not None and self._version < head.version:
            self._missing(head.version + 1)
        self._check_erasure(head is None or head.is_purged)
        for version in sorted(self._absent):
            self._report(
                FindingKind.CONTENT_GONE, version, "its content is not there, and no redaction says so"
            )

    # --- row by row

    def _report(self, kind: FindingKind, version: int, detail: str) -> None:
        """The first that is found of an event; what else is wrong with it follows from that."""
        if version not in self._found:
            self._found.add(version)
            self.report(kind, version, detail)

    def _row(self, version: int, row: StoredEvent | None) -> None:
        event: StreamEvent | None = None
        broken = "the store cannot read it"
        if row is not None:
            try:
                event = self.stored.event(row)
            except BrokenRowError as error:
                broken = error.detail
        if version > self._version + 1 and not (
            self._stubs and isinstance(event, (EventErased, SessionDeleted))  # looked at behind the last row
        ):
            self._missing(version)
        self._version = version
        if event is None:
            kind = FindingKind.UNREADABLE if row is None else FindingKind.CHANGED
            self._report(kind, version, broken)
            self._lose()
        elif isinstance(event, EventErased):
            self._stub(event)
        else:
            self._event(event)

    def _missing(self, upto: int) -> None:
        first = self._version + 1
        for version in range(first, min(upto, first + _NAMED)):
            self._report(FindingKind.MISSING, version, NO_EVENT)
        if upto > first + _NAMED:
            more = upto - first - _NAMED
            self._report(FindingKind.MISSING, first + _NAMED, f"nor of the {more} versions from here on")
        self._lose()

    def _lose(self) -> None:
        """What follows cannot be linked to what is in front of it, nor its state be folded."""
        self._links = self._doubted = None
        self._head = ""
        self._fold.lose()

    def _stub(self, event: EventErased) -> None:
        if set(vars(event)) > {"originator_id", "originator_version", "timestamp", "chain"} or event.chain:
            self._report(FindingKind.CHANGED, event.originator_version, "an erased event holds something")
        self._stubs.append(event)
        self._lose()

    def _event(self, event: StreamEvent) -> None:
        is_linked = self._link(event)
        self._content(event)
        if self.is_session:
            self._opening(event)
            if is_linked and self._doubted is None:
                self._fold.step(event)
            else:
                self._fold.lose()
        if isinstance(event, SessionDeleted) and is_linked:
            self.tombstone = event
        else:
            self._real.append(event.originator_version)
        if event.originator_version in self.exported:
            self._exported(event.originator_version, event.chain)

    # --- what is checked of an event

    def _link(self, event: StreamEvent) -> bool:
        """Whether the event follows on the one in front of it, as far as that is known.

        Behind a changed event it may follow the value that is stored there or the one that must be there. If
        it follows neither, it is doubted: the event behind it says which of the two was exchanged.
        """
        version, links = event.originator_version, self._links
        if isinstance(event, SessionDeleted):
            is_free = links is None or version - 1 in self._found
            follows = event.previous if is_free or event.previous in (links or ()) else None
            links = frozenset[str]() if follows is None else frozenset((follows,))
        must = frozenset(event.linked_to(link) for link in links or frozenset[str]())
        before_doubted, self._doubted = self._doubted, None
        was_changed = version - 1 in self._found
        self._head, self._links = event.chain, frozenset((event.chain,))
        if links is not None and event.chain in must:
            return True
        if links is None or (was_changed and not isinstance(event, SessionDeleted)):
            self._doubted = version
            return True
        if before_doubted is not None:
            self._report(FindingKind.CHANGED, before_doubted, "the event behind it does not follow on it")
            self._doubted = version
            return True
        self._report(FindingKind.CHANGED, version, "its chain value does not follow from what it holds")
        self._links = must | {event.chain}
        return False

    def _content(self, event: StreamEvent) -> None:
        content, salt, committed = event.content_fields()
        version = event.originator_version
        if isinstance(event, ContentEvent) and committed is not None:
            self._absent[version] = event
        if (salt is None) == (committed is None and content is not None):
            self._report(FindingKind.CHANGED, version, "content, salt and commitment do not go together")
        elif content is None and committed is None and isinstance(event, _HOLDERS):
            self._report(FindingKind.CONTENT_GONE, version, "its content is not there")
        if isinstance(event, ContentRedacted):
            self._redacted(event)

    def _redacted(self, redaction: ContentRedacted) -> None:
        """A redaction names the version whose content it removed, and its commitment; the rest is marker."""
        version = redaction.redacted_version
        target = self._absent.get(version)
        if target is None:
            self.unerased.append(version)
            return
        if target.commitment != redaction.commitment_kept:
            return
        del self._absent[version]
        if target.content != redaction.marker:
            self._report(FindingKind.CHANGED, version, "its marker is not the one of its redaction")

    def _opening(self, event: StreamEvent) -> None:
        version = event.originator_version
        if not isinstance(event, SessionOpened):
            if version == 0:
                self._report(FindingKind.CHANGED, version, "the session does not begin with its opening")
        elif version != 0:
            self._report(FindingKind.CHANGED, version, "a session opens once")
        elif id_of_session(event.session_id, event.namespace or "") != self.aggregate_id:
            self._report(FindingKind.CHANGED, version, "it opens another session")

    def _exported(self, version: int, chain: str) -> None:
        if chain == self.exported[version]:
            self.proven.add(version)
        else:
            self.refuted.add(version)
            self.report(FindingKind.HISTORY, version, "it is not the event that the exported head names")

    # --- what was erased

    def _check_erasure(self, may_be_purged: bool) -> None:
        """Stubs stand in front of a tombstone, all of them, and nowhere else."""
        tombstone = self.tombstone
        if tombstone is None or tombstone.keeps_content:
            # Only a damaged end of the session stands between the stubs and what explains them.
            if set(self._real) - self._found or not self._found:
                for stub in self._stubs:
                    self._report(
                        FindingKind.CHANGED,
                        stub.originator_version,
                        "it was erased, and nothing erased its session",
                    )
            return
        if not self._stubs:
            return
        for version in self._real:
            self._report(FindingKind.CHANGED, version, "it is not erased, though its session was")
        versions = {stub.originator_version for stub in self._stubs}
        gone = set(range(tombstone.originator_version)) - versions - self._found
        # A purge leaves the stub that says how far an index got, until it is further.
        if gone and not (may_be_purged and 0 in versions and len(versions) <= _LEFT):
            for version in sorted(gone)[:_NAMED]:
                self._report(FindingKind.MISSING, version, "what stands for an erased event is not there")
        for stub in self._stubs:
            if stub.timestamp != tombstone.timestamp:
                self._report(FindingKind.CHANGED, stub.originator_version, "the deletion did not erase it")
        at = tombstone.originator_version - 1
        if at in self.exported and tombstone.previous is not None:
            self._exported(at, tombstone.previous)


class _Fold:
    """Whether the state that each event carries, or the anchor that it names, is what the events lead to."""

    def __init__(self, report: Callable[[FindingKind, int, str], None]) -> None:
        self._report = report
        self._state: SessionState | None = None
        self._is_known = True
        self._messages: dict[str, int] = {}
        self._view: set[int] | None = set()

    def lose(self) -> None:
        """The state is not known until an event carries one."""
        self._state = self._view = None
        self._is_known = False

    def step(self, event: StreamEvent) -> None:
        """One more event."""
        carried = event.state_carried() if event.state is not None else None
        if self._is_known:
            self._compare(event, carried)
        else:
            self._state, self._is_known = carried, carried is not None
        if isinstance(event, Compacted) and carried is not None:
            self._boundary(event, carried)
        elif isinstance(event, MessageAppended):
            self._messages[event.event_id] = event.originator_version
            if self._view is not None:
                self._view.add(event.originator_version)

    def _compare(self, event: StreamEvent, carried: SessionState | None) -> None:
        before, version = self._state, event.originator_version
        try:
            self._state = after = event.state_after(before)
        except Exception as error:
            self._report(FindingKind.STATE, version, f"it cannot follow ({type(error).__name__})")
            self.lose()
            return
        if carried is None and (before is None or event.anchor != before.anchor):
            self._report(FindingKind.STATE, version, "it names another anchor than the newest one")
        elif carried is not None and carried != after:
            self._report(FindingKind.STATE, version, "the state that it carries is not the one it leads to")
        elif before is not None and after.modified_on < before.modified_on:
            self._report(FindingKind.STATE, version, "it was recorded before the event in front of it")

    def _boundary(self, event: Compacted, after: SessionState) -> None:
        """The ranges that a boundary carries are the messages that it names, and none that it covers."""
        first = event.originator_version + 1
        named = [self._messages.get(name, -1) for name in event.pinned or ()]
        named += range(first, first + len(event.summary or ()))
        named += (self._messages.get(name, -1) for name in event.preserved or ())
        view, self._view = self._view, None if -1 in named else set(named)
        if view is None:
            return
        messages = view.union(named)
        spanned = [v for low, high in after.view for v in range(low, high + 1) if v in messages]
        if spanned != named:
            self._report(FindingKind.STATE, first - 1, "its view is not the one that its ids name")
