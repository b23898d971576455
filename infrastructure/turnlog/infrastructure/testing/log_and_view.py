"""The contract of log and view: what holds for sessions on every store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from turnlog.application import SessionService
from turnlog.domain import (
    CompactionWindow,
    Message,
    NewEvent,
    SessionIdUnavailableError,
    SessionNotFoundError,
    TurnCountTrigger,
    TurnlogError,
    VersionConflictError,
    WindowCompactionStrategy,
)

HOSTILE_TEXTS = (
    "nul \0 in it",
    "lone \ud800 surrogate",
    "Привет, 漢字 🙂",
    '{"_type_":"x","_data_":"y"}',
    "  ",
)


class StoreContract(ABC):
    """A class of tests: derive one for your store, say how a service is opened on it, run it with pytest."""

    @abstractmethod
    def service(self) -> SessionService:
        """A service on the store of this test, which was empty when the test began.

        Asked for again in one test, it opens the same store, with nothing remembered.
        """


class LogAndViewContract(StoreContract):
    """What is appended is the log, once and in order; compaction changes the view and never the log."""

    def test_what_is_appended_is_read_by_others_as_it_was(self) -> None:
        """Any text comes back, also through another service."""
        writer = self.service()
        writer.create("s")
        for text in HOSTILE_TEXTS:
            writer.append_message("s", Message.user(text))
        reader = self.service()
        assert [event.text for event in reader.get_events("s")] == list(HOSTILE_TEXTS)
        assert [event.version for event in reader.get_events("s")] == [1, 2, 3, 4, 5]
        assert reader.view("s").ids == tuple(event.id for event in writer.get_events("s"))

    def test_a_repeat_changes_nothing(self) -> None:
        """The id decides, whichever service it comes through."""
        self._opened().append_message("s", Message.user("once"), event_id="one")
        again = self.service().append_message("s", Message.user("once"), event_id="one")
        other = self.service().append_message("s", Message.user("else"), event_id="one")
        assert (again.is_repeat, again.differs) == (True, False)
        assert (other.is_repeat, other.differs) == (True, True)
        assert [event.text for event in self.service().get_events("s")] == ["once"]

    def test_of_a_batch_the_repeats_are_left_out(self) -> None:
        """What is new is appended in order."""
        sessions = self._opened()
        sessions.append_message("s", Message.user("b"), event_id="b")
        sessions.append_events("s", [NewEvent(message=Message.user(name), id=name) for name in "abca"])
        assert [event.id for event in sessions.get_events("s")] == ["b", "a", "c"]

    def test_a_stale_version_writes_nothing(self) -> None:
        """The framework's version check, as an error of ours."""
        sessions = self._opened()
        sessions.append_message("s", Message.user("first"))
        new = [NewEvent(message=Message.user("late")), NewEvent(message=Message.user("later"))]
        refused(VersionConflictError, lambda: sessions.append_events("s", new, expected_version=0))
        assert len(self.service().get_events("s")) == 1

    def test_many_writers_lose_and_double_nothing(self) -> None:
        """Services of their own append to one session at once."""
        self._opened()

        def append(writer: int) -> None:
            sessions = self.service()
            for number in range(5):
                sessions.append_message("s", Message.user("x"), event_id=f"{writer}-{number}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(4)))
        ids = [event.id for event in self.service().get_events("s")]
        for writer in range(4):
            own = [name for name in ids if name.startswith(f"{writer}-")]
            assert own == [f"{writer}-{number}" for number in range(5)]
        assert len(ids) == 20

    def test_a_compaction_changes_the_view_and_not_the_log(self) -> None:
        """The log before is a prefix of the log behind; the view at a version stays what it was."""
        sessions = self._opened()
        for number in range(6):
            sessions.append_message("s", Message.user(str(number)))
        before, view = sessions.get_events("s"), sessions.view("s")
        strategy = WindowCompactionStrategy(CompactionWindow.last_turns(2))
        assert not sessions.compact("s", TurnCountTrigger(3), strategy).is_unchanged
        reader = self.service()
        kept = [(event.id, event.text) for event in reader.get_events("s")[: len(before)]]
        assert kept == [(event.id, event.text) for event in before]
        assert [message.text for message in reader.view("s").told()] == ["4", "5"]
        assert reader.view("s", at_version=view.version).ids == view.ids

    def test_an_id_is_used_once(self) -> None:
        """Two sessions of one id cannot be, also behind a deletion."""
        sessions = self._opened()
        sessions.delete("s", erase=False)
        refused(SessionIdUnavailableError, lambda: self.service().create("s"))
        refused(SessionNotFoundError, lambda: self.service().append_message("s", Message.user("late")))

    def test_a_session_that_expired_is_deleted_once(self) -> None:
        """Two sweeps count one session once."""
        sessions = self.service()
        sessions.create("gone", time_to_live=timedelta(seconds=-1))
        sessions.create("here")
        at = sessions.list_sessions()[0].created_at
        assert sorted((sessions.delete_expired(at), self.service().delete_expired(at))) == [0, 1]
        assert [row.session_id for row in self.service().list_sessions()] == ["here"]

    def _opened(self) -> SessionService:
        sessions = self.service()
        sessions.create("s")
        return sessions


def refused(kind: type[TurnlogError], action: Callable[[], object]) -> None:
    """The action raises this error."""
    try:
        action()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised.")
