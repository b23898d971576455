"""Whether the log is what was recorded: what was changed, removed, inserted or reordered is found."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from eventsourcing.application import Application

from turnlog.application.audit.chains import Report, StreamCheck
from turnlog.application.audit.core import AuditCore
from turnlog.application.audit.findings import Finding, FindingKind, Verification
from turnlog.application.audit.heads import Head, Heads, HeadSigner, HeadVerifier
from turnlog.application.audit.stored import StoredStreams
from turnlog.application.passes import passes_id
from turnlog.application.ports import RecordedHead, SessionRowsRecorder
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.events import EventIdTaken
from turnlog.domain.events import as_uuid as _as_uuid
from turnlog.domain.guards import require_kind, require_methods

_OUR_TOPICS = "turnlog.domain.events:"
_PAGE = 500

_ATTEMPTS = 3
"""How often a session is checked that was deleted, and purged, while it was read."""


class Verifying(AuditCore):
    """The proof that nobody changed the log behind the application's back."""

    def verify(
        self,
        session_id: str | None = None,
        *,
        heads: Heads | str | bytes | None = None,
        signed_by: HeadVerifier | None = None,
    ) -> Verification:
        """Check one session, or all: every event against its own bytes, the chain, and the recorded head.

        `heads` are former heads that `export_heads` gave: each must be part of today's log. With `signed_by`
        they must carry a signature of that key. Without a session id a service without a scope checks the
        whole store, deleted sessions and other namespaces included. Reads every event once.

        Raises `SessionNotFoundError`, `InvalidHeadsError`, `InvalidSignatureError`; what it finds in the log
        it returns.
        """
        former = Heads.of_json(heads) if isinstance(heads, (str, bytes)) else heads
        if former is not None:
            require_kind("`heads`", former, Heads, "what `export_heads` gave, or the text of its file")
        if former is not None and signed_by is not None:
            former.require_signature(signed_by)
        exported: dict[UUID, dict[int, str]] = {}
        for head in former.heads if former else ():
            exported.setdefault(head.aggregate_id, {})[head.version] = head.chain
        audit = _Audit(StoredStreams(self._app), exported)
        if session_id is not None or self._principal is not None:
            ids = self._scoped_ids() if session_id is None else {self._known(session_id): session_id}
            for aggregate_id, name in ids.items():
                self._check(audit, aggregate_id, name)
                self._check_passes(audit, aggregate_id)
        else:
            self._check_store(audit)
        return audit.verification()

    def export_heads(self, *, signer: HeadSigner | None = None) -> Heads:
        """The newest chain values of all sessions in reach: kept elsewhere they prove what was there now.

        They name sessions by aggregate id only. `to_json` of them is for a file. Where the row of a session
        tells of newer events than the log has, the head is that of the row, and `lost` of the answer has it:
        a `verify` with these heads goes on finding the loss. Gaps are for `verify` to find.
        """
        if signer is not None:
            require_methods("`signer`", signer, ("sign",), "a key that signs, as Ed25519Signer")
        heads: list[Head] = []
        lost: list[Head] = []
        for aggregate_id in sorted(self._ids_in_reach()):
            recorded = self._head(aggregate_id)  # first: who appends moves it together with the log
            state = self._streams.state(aggregate_id)
            if recorded is not None and (state is None or state.version < recorded.version):
                heads.append(Head(aggregate_id, recorded.version, recorded.chain))
                lost.append(heads[-1])
            elif state is not None:
                heads.append(Head(aggregate_id, state.version, state.head))
        taken = Heads(self._now(), tuple(heads), lost=tuple(lost))
        return taken if signer is None else taken.signed(signer)

    def _known(self, session_id: str) -> UUID:
        """The aggregate of a session that exists, or of one of which the store has a row."""
        key = self._key(session_id)
        if self._head(key.aggregate_id) is None and self._streams.event_at(key.aggregate_id, 0) is None:
            raise SessionNotFoundError(session_id)
        return key.aggregate_id

    def _ids_in_reach(self) -> Iterator[UUID]:
        if self._principal is not None:
            yield from self._scoped_ids()
            return
        seen: set[UUID] = set()
        for row in self._rows_of_directory():
            seen.add(row[0])
            yield row[0]
        for aggregate_id in self._recorded():
            if aggregate_id not in seen:
                yield aggregate_id

    def _scoped_ids(self) -> dict[UUID, str]:
        """The sessions of the scope, by aggregate id."""
        return dict(self._rows_of_directory())

    def _rows_of_directory(self) -> Iterator[tuple[UUID, str]]:
        before: int | None = None
        while True:
            rows = self._directory.newest(self._namespace, limit=_PAGE, before=before, where=self._scope)
            yield from ((row.aggregate_id, row.session_id) for row in rows)
            if len(rows) < _PAGE:
                return
            before = rows[-1].position

    def _recorded(self) -> Iterator[UUID]:
        recorder = self._app.recorder
        return recorder.recorded_sessions() if isinstance(recorder, SessionRowsRecorder) else iter(())

    def _check(self, audit: _Audit, aggregate_id: UUID, session_id: str | None) -> None:
        audit.check(aggregate_id, session_id, lambda: self._head(aggregate_id), has_rows=self._has_rows)

    def _check_passes(self, audit: _Audit, aggregate_id: UUID) -> None:
        stream = passes_id(aggregate_id)
        if self._streams.event_at(stream, 0) is not None:
            audit.check_passes(stream)

    @property
    def _has_rows(self) -> bool:
        recorder = self._app.recorder
        return isinstance(recorder, SessionRowsRecorder) and recorder.records_heads

    def _check_store(self, audit: _Audit) -> None:
        names = dict(self._rows_of_directory()) if self._has_rows else {}
        known = (*self._recorded(), *audit.exported)
        for aggregate_id in _checked(self._app, audit, known):
            self._check(audit, aggregate_id, names.get(aggregate_id))


def verify_log(app: Application[UUID]) -> Verification:
    """Check every event of the store, where the rows about sessions cannot be read: without recorded heads.

    So an end that was cut off is not found, nor is a session that is gone as a whole.
    """
    audit = _Audit(StoredStreams(app), {})
    for aggregate_id in _checked(app, audit, ()):
        audit.check(aggregate_id, None, lambda: None, has_rows=False)
    return audit.verification()


def _checked(app: Application[UUID], audit: _Audit, known: Iterable[UUID]) -> Iterator[UUID]:
    """The sessions of the store, and those that are known otherwise; streams of passes are checked here."""
    streams = dict.fromkeys(known)
    ledger: set[UUID] = set()
    for aggregate_id, topic in _topics(app, audit):
        if topic == EventIdTaken.TOPIC:
            ledger.add(aggregate_id)
        else:
            streams.setdefault(aggregate_id)
    passes = {passes_id(aggregate_id) for aggregate_id in streams}
    for aggregate_id in streams:
        if aggregate_id in passes:
            audit.check_passes(aggregate_id)
        elif aggregate_id not in ledger:
            yield aggregate_id


def _topics(app: Application[UUID], audit: _Audit) -> Iterator[tuple[UUID, str]]:
    """Aggregate and topic of every row of ours in the store."""
    position: int | None = None
    recorder = app.recorder
    while True:
        limit = _PAGE
        try:
            page = recorder.select_notifications(position, limit, inclusive_of_start=position is None)
        except Exception:  # a row in it cannot be given: read them one by one
            position = yield from _topics_one_by_one(app, audit, (position or 0) + 1)
            if position is None:
                return
            continue
        for row in page:
            position = row.id
            if str(row.topic).startswith(_OUR_TOPICS):
                yield _as_uuid(row.originator_id), row.topic
        if len(page) < limit:
            return


def _topics_one_by_one(
    app: Application[UUID], audit: _Audit, first: int
) -> Generator[tuple[UUID, str], None, int | None]:
    """A page of rows, each read alone; returns where to go on behind, None at the end."""
    recorder = app.recorder
    newest = audit.stored.newest_row()
    last = min(first + _PAGE - 1, newest)
    for position in range(first, last + 1):
        try:
            rows = recorder.select_notifications(position, 1, position)
            for row in rows:
                if str(row.topic).startswith(_OUR_TOPICS):
                    yield _as_uuid(row.originator_id), row.topic
        except Exception as error:
            audit.stored.newest_row()  # raises where the store is gone, not a row
            audit.add(
                Finding(FindingKind.UNREADABLE, f"row {position} cannot be read ({type(error).__name__})")
            )
    return last if last < newest else None


@dataclass
class _Audit:
    """One verification while it runs."""

    stored: StoredStreams
    exported: Mapping[UUID, Mapping[int, str]]
    findings: list[Finding] = field(default_factory=list[Finding])
    notes: list[str] = field(default_factory=list[str])
    sessions: int = 0
    events: int = 0
    proven: int = 0

    def add(self, finding: Finding) -> None:
        """One more finding."""
        self.findings.append(finding)

    def check(
        self,
        aggregate_id: UUID,
        session_id: str | None,
        recorded: Callable[[], RecordedHead | None],
        *,
        has_rows: bool,
    ) -> None:
        """Check one session, while others may write to it.

        What is found counts once the session stands still: a deletion meanwhile exchanges its events.
        """
        self.sessions += 1
        exported = self.exported.get(aggregate_id, {})
        found: list[Finding] = []

        def report(kind: FindingKind, version: int | None, detail: str) -> None:
            found.append(Finding(kind, detail, session_id, aggregate_id.hex, version))

        def run() -> StreamCheck:
            found.clear()
            check = StreamCheck(aggregate_id, report, self.stored, exported)
            check.run(recorded)
            if check.began_at is None and has_rows and check.events:
                report(FindingKind.UNKNOWN_SESSION, None, "the store has events of it, and no row")
            return check

        check, attempts = run(), 1
        while found and attempts < _ATTEMPTS and recorded() != check.began_at:
            check, attempts = run(), attempts + 1
        self.events += check.events
        for version in check.unerased:
            name = session_id or aggregate_id.hex
            self.notes.append(
                f"session {name}: what was redacted at version {version} is still there: run a sweep"
            )
        self._history(check, exported, report)
        self.findings += found

    def check_passes(self, aggregate_id: UUID) -> None:
        """Check the stream of passes beside a session."""

        def report(kind: FindingKind, version: int | None, detail: str) -> None:
            self.add(Finding(kind, f"pass: {detail}", None, aggregate_id.hex, version))

        check = StreamCheck(aggregate_id, report, self.stored, is_session=False)
        check.run(lambda: None)
        self.events += check.events

    def verification(self) -> Verification:
        """What was found."""
        return Verification(
            findings=tuple(self.findings),
            sessions=self.sessions,
            events=self.events,
            heads_proven=self.proven,
            notes=tuple(self.notes),
        )

    def _history(self, check: StreamCheck, exported: Mapping[int, str], report: Report) -> None:
        """Say of each exported head that is neither proven nor refuted what became of it."""
        self.proven += len(check.proven)
        for version in sorted(exported.keys() - check.proven - check.refuted):
            if check.tombstone is not None:
                name = check.aggregate_id.hex
                self.notes.append(f"session {name} was deleted since: its event {version} cannot be proven")
            else:
                report(FindingKind.HISTORY, version, "the event that the exported head names is not there")
