"""The contract of the materialised view: its rows are the view, at the position that they got to."""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from eventsourcing.persistence import Tracking

from turnlog.application import SessionService
from turnlog.application.projections import (
    MaterialisedViews,
    MemoryViewStore,
    StoredView,
    ViewProjection,
    ViewStore,
)
from turnlog.application.projections.batches import Positioned, pages
from turnlog.domain import (
    CompactionWindow,
    EventType,
    Message,
    NewEvent,
    SessionAttributes,
    SessionNotFoundError,
    SummaryRequest,
    TurnCountTrigger,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.testing.log_and_view import StoreContract, refused


class Summarizer:
    """Says how much it was given."""

    def summarize(self, request: SummaryRequest) -> list[Message]:
        """A shadow prompt and a summary."""
        return [Message.user("What was said?"), Message.assistant(f"{len(request.covered)} messages.")]


class MaterialisedViewContract(StoreContract):
    """A view store follows the log, and applies every event once."""

    @abstractmethod
    def view_store(self) -> ViewStore:
        """A view store, with its tables, that was empty when the test began.

        Asked for again in one test, it opens the same one, with nothing remembered.
        """

    def test_its_views_are_those_that_the_service_tells(self) -> None:
        """With boundaries, summaries, branches and events outside the view."""
        sessions = self._lived()
        stored = MaterialisedViews(sessions, self.view_store())
        stored.catch_up()
        again = MaterialisedViews(self.service(), self.view_store())
        for name in ("s", "t"):
            assert stored.view(name) == sessions.view(name)
            assert again.view(name) == sessions.view(name)
        assert any(event.synthetic for event in stored.view("s").events)

    def test_event_by_event_its_rows_are_those_of_one_batch(self) -> None:
        """And those of the reference in memory."""
        log = log_of(self._lived())
        store, reference = self.view_store(), MemoryViewStore()
        projection = ViewProjection(store)
        for item in log:
            projection.process_event(item.event, Tracking("Sessions", item.position))
        reference.apply(log)
        assert views(store, log) == views(reference, log)
        assert store.position() == log[-1].position

    def test_nobody_sees_half_of_a_compaction(self) -> None:
        """A boundary is applied together with its summary."""
        log = log_of(self._lived())
        store, reader = self.view_store(), self.view_store()
        projection = ViewProjection(store)
        for item in log:
            projection.process_event(item.event, Tracking("Sessions", item.position))
            assert all(view.is_whole for view in views(reader, log).values() if view is not None)

    def test_what_is_half_a_compaction_is_completed_by_the_next_batch(self) -> None:
        """A batch may end anywhere."""
        log = log_of(self._lived())
        reference = MemoryViewStore()
        reference.apply(log)
        store = self.view_store()
        for at in range(0, len(log), 3):
            store.apply(log[at : at + 3])
        assert views(store, log) == views(reference, log)

    def test_what_was_applied_before_is_left_out(self) -> None:
        """Of a batch that begins in front of the position only the rest is applied."""
        log = log_of(self._lived())
        reference = MemoryViewStore()
        reference.apply(log)
        self.view_store().apply(log[:9])
        store = self.view_store()
        for batch in (log[:9], log[4:], log, log[-1:]):
            store.apply(batch)
        assert views(store, log) == views(reference, log)
        assert store.position() == log[-1].position

    def test_several_that_apply_the_same_at_once_apply_nothing_twice(self) -> None:
        """In pieces of their own."""
        log = log_of(self._lived())
        reference = MemoryViewStore()
        reference.apply(log)
        stores = [self.view_store() for _ in range(4)]

        def apply(number: int) -> None:
            size = number + 1
            for at in range(0, len(log), size):
                stores[number].apply(log[at : at + size])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(apply, range(4)))
        assert views(self.view_store(), log) == views(reference, log)

    def test_a_deleted_session_has_no_view(self) -> None:
        """Whether it was followed before or was erased already."""
        for followed in (True, False):
            sessions, store = self.service(), self.view_store()
            stored = MaterialisedViews(sessions, store)
            name = f"deleted {followed}"
            sessions.create(name)
            sessions.append_message(name, Message.user("hi"))
            if followed:
                stored.catch_up()
            sessions.delete(name, erase=False)
            stored.catch_up()
            refused(SessionNotFoundError, partial(stored.view, name))

    def test_the_position_moves_with_events_that_change_no_view(self) -> None:
        """Else whoever waits for one of them would wait for ever."""
        store = self.view_store()
        assert store.position() is None
        assert not store.has_tracking_id("Sessions", 1)
        store.apply([])
        assert store.position() is None
        store.apply([Positioned(3, None), Positioned(7, None)])
        assert store.position() == 7
        assert self.view_store().position() == 7
        assert store.has_tracking_id("Sessions", 7)
        assert not store.has_tracking_id("Sessions", 8)

    def test_waiting_ends_at_the_position_and_not_before(self) -> None:
        """At once where it is there; `TimeoutError` where nobody gets there."""
        store = self.view_store()
        store.apply([Positioned(3, None)])
        self.view_store().wait("Sessions", 3, timeout=0)
        try:
            store.wait("Sessions", 4, timeout=0.01)
        except TimeoutError:
            return
        raise AssertionError("The position is not there.")

    def test_a_session_of_another_does_not_exist_in_a_scope(self) -> None:
        """However it is asked for."""
        sessions = self.service()
        sessions.create("s", metadata={SessionAttributes.PRINCIPAL_NAME: "ada"})
        store = self.view_store()
        MaterialisedViews(sessions, store).catch_up()
        theirs = MaterialisedViews(sessions.scoped_to("bob"), store)
        refused(SessionNotFoundError, lambda: theirs.view("s"))
        refused(SessionNotFoundError, lambda: theirs.rows("s"))

    def test_ids_and_branches_come_back_as_they_were(self) -> None:
        """Any text, and the longest."""
        sessions, store = self.service(), self.view_store()
        sessions.create("s")
        ids = ["漢字 🙂", "a'b\"c\\d%_", "é" * 200]
        sessions.append_events(
            "s", [NewEvent(message=Message.user("hi"), id=name, branch="Zoë.b") for name in ids]
        )
        stored = MaterialisedViews(sessions, store)
        stored.catch_up()
        rows = stored.rows("s").rows
        assert [(row.event_id, row.branch, row.role) for row in rows] == [
            (name, "Zoë.b", "user") for name in ids
        ]

    def _lived(self) -> SessionService:
        """Two sessions that were compacted with and without a summary."""
        sessions = self.service()
        for name, summarizer in (("s", Summarizer()), ("t", None)):
            sessions.create(name)
            for turn in range(4):
                sessions.append_events(
                    name,
                    [
                        NewEvent(message=Message.user(f"turn {turn}")),
                        NewEvent(message=Message.assistant("aside"), branch="scout"),
                        NewEvent(message=Message.assistant("done")),
                    ],
                )
                sessions.append_event(name, EventType.of("ACME.AUDIT"), {"turn": turn})
                if turn in (1, 3):
                    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer)
                    assert not sessions.compact(name, TurnCountTrigger(1), strategy).is_unchanged
            sessions.append_message(name, Message.user("behind"))
        return sessions


def log_of(sessions: SessionService) -> list[Positioned]:
    """All that the log holds."""
    return [item for page in pages(sessions.app.recorder, sessions.app.mapper, None) for item in page]


def views(store: ViewStore, log: list[Positioned]) -> dict[UUID, StoredView | None]:
    """What the store has of every session in this log."""
    ids = {UUID(str(item.event.originator_id)) for item in log if item.event is not None}
    return {aggregate_id: store.view_of(aggregate_id) for aggregate_id in ids}
