"""The directory that catches up and the one of rows give equal answers after any history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.contracts.stores import in_file, in_memory
from tests.laws.profiles import effort

from turnlog.application.ports import SessionRow
from turnlog.application.service import SessionService
from turnlog.domain.errors import LegalHoldError, SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.messages import Message

IDS = ("a", "ab", "A", "a%", "é", "評")
PRINCIPALS = (None, "ada", "eve")
BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)

ids = st.sampled_from(IDS)
values: st.SearchStrategy[Any] = st.sampled_from(
    [1, 1.0, True, "1", None, "é", "e\u0301", [1], {"a": 1}, "\ud800"]
)
metadata: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["key", "ключ", "user.name"]), values | st.sampled_from(["ada", "eve"]), max_size=3
)


class Directories(RuleBasedStateMachine):
    """One history on three stores: in memory, rows of SQLite, SQLite without rows of ours."""

    @initialize(first=st.lists(metadata, min_size=4, max_size=4))
    def open(self, first: list[dict[str, Any]]) -> None:
        self.folder = TemporaryDirectory()
        plain = {"APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder"}
        makers = {"memory": in_memory(), "rows": in_file(), "plain": in_file(env=plain)}
        self.stores = [make(self._folder(name)) for name, make in makers.items()]
        self.services = [store.service() for store in self.stores]
        for sid, data in zip(IDS, first, strict=False):
            self.create(sid, data, 24, 12)

    def _folder(self, name: str) -> Path:
        folder = Path(self.folder.name) / name
        folder.mkdir()
        return folder

    def each(self, action: Callable[[SessionService], object]) -> None:
        """Do the same on each store, with the same outcome."""
        outcomes: list[object] = []
        for service in self.services:
            try:
                outcomes.append(action(service))
            except (SessionNotFoundError, SessionIdUnavailableError, LegalHoldError) as error:
                outcomes.append(str(error))
        assert all(outcome == outcomes[0] for outcome in outcomes)

    @rule(hours=st.sampled_from([1, 24]))
    def time_passes(self, hours: int) -> None:
        for store in self.stores:
            store.pass_time(hours=hours)

    @rule(sid=ids, data=metadata, hours=st.none() | st.integers(0, 48), idle=st.none() | st.integers(1, 48))
    def create(self, sid: str, data: dict[str, Any], hours: int | None, idle: int | None) -> None:
        life = None if hours is None else timedelta(hours=hours)
        rest = None if idle is None else timedelta(hours=idle)
        self.each(lambda s: s.create(sid, metadata=data, time_to_live=life, idle=rest).version)

    @rule(sid=ids, data=metadata)
    def update(self, sid: str, data: dict[str, Any]) -> None:
        self.each(lambda s: s.update_metadata(sid, data))

    @rule(sid=ids, count=st.integers(1, 3), role=st.sampled_from([Message.user, Message.system]))
    def append(self, sid: str, count: int, role: Callable[[str], Message]) -> None:
        self.each(lambda s: len(s.append_events(sid, [role("hi")] * count)))

    @rule(sid=ids)
    def note(self, sid: str) -> None:
        self.each(lambda s: s.append_event(sid, "NOTE", {}).version)

    @rule(sid=ids, hours=st.none() | st.integers(0, 48))
    def extend(self, sid: str, hours: int | None) -> None:
        self.each(lambda s: s.extend(sid, None if hours is None else BEGIN + timedelta(hours=hours)))

    @rule(sid=ids)
    def delete(self, sid: str) -> None:
        self.each(lambda s: s.delete(sid, erase=False).version)

    @rule()
    def sweep(self) -> None:
        self.each(lambda s: s.delete_expired(self.stores[0].now))

    @rule(
        principal=st.sampled_from(PRINCIPALS),
        where=metadata,
        limit=st.integers(1, 4),
        prefix=st.sampled_from(["", *IDS]),
    )
    def ask(self, principal: str | None, where: dict[str, Any], limit: int, prefix: str) -> None:
        self.agree(lambda s: _pages(_scope(s, principal), where, limit))
        self.agree(lambda s: [_shown(_scope(s, principal).sessions_with_prefix(prefix, limit=limit))])

    @invariant()
    def the_lists_are_equal(self) -> None:
        if hasattr(self, "services"):
            self.agree(lambda s: [_shown(s.list_sessions())])

    def agree(self, question: Callable[[SessionService], object]) -> None:
        """Services that saw it all, and new ones, answer alike."""
        answers = [question(service) for service in self.services]
        answers += [question(store.service()) for store in self.stores[:1]]
        assert all(answer == answers[0] for answer in answers)

    def teardown(self) -> None:
        for service in self.services:
            service.app.close()
        self.folder.cleanup()


def _scope(sessions: SessionService, principal: str | None) -> SessionService:
    return sessions if principal is None else sessions.scoped_to(principal)


def _pages(sessions: SessionService, where: dict[str, Any], limit: int) -> list[list[tuple[object, ...]]]:
    return [_shown(page) for page in _turned(sessions, where, limit)]


def _turned(sessions: SessionService, where: dict[str, Any], limit: int) -> Iterator[Sequence[SessionRow]]:
    before: int | None = None
    while page := sessions.find_by_metadata(where, limit=limit, before=before):
        yield page
        before = page[-1].position


def _shown(rows: Sequence[SessionRow]) -> list[tuple[object, ...]]:
    """All that a row says but its position, which each store counts its own way."""
    return [
        (
            row.session_id,
            row.aggregate_id,
            row.created_at,
            row.modified_at,
            row.expires_at,
            row.version,
            row.messages,
            repr(row.metadata),
        )
        for row in rows
    ]


TestDirectoriesAgree = Directories.TestCase
TestDirectoriesAgree.settings = effort(30, 1000, steps=(20, 40))
