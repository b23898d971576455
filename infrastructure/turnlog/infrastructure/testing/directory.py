"""The contract of the directory: sessions are listed as they are, the moment they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from turnlog.application import SessionRow
from turnlog.domain import Message
from turnlog.infrastructure.testing.log_and_view import StoreContract


class DirectoryContract(StoreContract):
    """Listings, newest first and in pages, by metadata and by the beginning of an id."""

    def test_sessions_are_listed_newest_first_in_pages(self) -> None:
        """The position of the last one leads to the next page."""
        sessions = self.service()
        for number in range(7):
            sessions.create(str(number))
        reader = self.service()
        first = reader.list_sessions(limit=3)
        second = reader.list_sessions(limit=3, before=first[-1].position)
        third = reader.list_sessions(limit=3, before=second[-1].position)
        assert ids([*first, *second, *third]) == ["6", "5", "4", "3", "2", "1", "0"]

    def test_a_row_says_how_the_session_is(self) -> None:
        """Version, count and metadata are those behind the last write."""
        sessions = self.service()
        sessions.create("s", metadata={"title": "nul \0", "n": 1})
        sessions.append_message("s", Message.user("hi"))
        sessions.update_metadata("s", {"title": "Привет", "deep": {"a": [1, None]}})
        (row,) = self.service().list_sessions()
        assert (row.version, row.messages) == (2, 1)
        assert row.metadata == {"title": "Привет", "deep": {"a": [1, None]}}

    def test_metadata_are_compared_as_json_exactly(self) -> None:
        """Every key must hold; 1 is not "1", and not true."""
        sessions = self.service()
        for name, value in (("int", 1), ("text", "1"), ("true", True), ("null", None)):
            sessions.create(name, metadata={"value": value, "kind": "x"})
        for name, value in (("int", 1), ("text", "1"), ("true", True), ("null", None)):
            assert ids(self.service().find_by_metadata({"value": value, "kind": "x"})) == [name]
        assert ids(sessions.find_by_metadata({"value": 1, "kind": "y"})) == []
        assert ids(sessions.find_by_metadata({"missing": None})) == []

    def test_an_update_of_the_metadata_is_found_by_what_is_new_only(self) -> None:
        """What was there before leads nowhere."""
        sessions = self.service()
        sessions.create("s", metadata={"owner": "ada"})
        sessions.update_metadata("s", {"owner": "bob"})
        assert ids(self.service().find_by_metadata({"owner": "ada"})) == []
        assert ids(self.service().find_by_metadata({"owner": "bob"})) == ["s"]

    def test_a_prefix_is_compared_exactly_and_in_the_order_of_ids(self) -> None:
        """No pattern, no locale."""
        sessions = self.service()
        for name in ("b%", "b_", "ba", "B", "bé", "c"):
            sessions.create(name)
        assert ids(sessions.sessions_with_prefix("b")) == ["b%", "b_", "ba", "bé"]
        assert ids(sessions.sessions_with_prefix("b%")) == ["b%"]
        assert ids(sessions.sessions_with_prefix("x")) == []

    def test_what_expires_is_known_from_what_was_said_last(self) -> None:
        """An idle time begins anew, an extension holds."""
        sessions = self.service()
        sessions.create("idle", idle=timedelta(hours=1))
        sessions.create("never", time_to_live=None)
        spoken = sessions.append_message("idle", Message.user("hi")).timestamp
        rows = {row.session_id: row for row in self.service().list_sessions()}
        assert rows["idle"].expires_at == spoken + timedelta(hours=1)
        assert rows["never"].expires_at is None

    def test_a_deleted_session_is_not_listed(self) -> None:
        """By no question."""
        sessions = self.service()
        sessions.create("s", metadata={"owner": "ada"})
        sessions.delete("s", erase=False)
        reader = self.service()
        assert ids(reader.list_sessions()) == []
        assert ids(reader.find_by_metadata({"owner": "ada"})) == []
        assert ids(reader.sessions_with_prefix("s")) == []


def ids(rows: Iterable[SessionRow]) -> list[str]:
    """The ids of the sessions, in order."""
    return [row.session_id for row in rows]
