"""The contract of recall: what was said is found, covered or not, the moment it is stored."""

from __future__ import annotations

from turnlog.application import SessionService
from turnlog.domain import (
    CompactionWindow,
    EventQuery,
    Message,
    NewEvent,
    SessionAttributes,
    TurnCountTrigger,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.testing.log_and_view import StoreContract

MANY = 300
"""Messages, more than an index may leave to later."""


class RecallContract(StoreContract):
    """A search finds what matches, in order, and nothing else."""

    def test_each_message_is_found_at_once_by_another_service(self) -> None:
        """However many there are: an index may lag, a search may not."""
        writer, reader = self.service(), self.service()
        writer.create("s")
        for number in range(40):
            writer.append_message("s", Message.user(f"word{number}end"))
            found = reader.search_events("s", EventQuery(keywords=f"word{number}end"))
            assert [event.version for event in found] == [number + 1]

    def test_all_of_many_are_found_in_order(self) -> None:
        """Indexed or not yet."""
        sessions = self._filled()
        found = sessions.search_events("s", EventQuery(keywords="common"))
        assert [event.version for event in found] == list(range(1, MANY + 1))
        assert [event.version for event in sessions.search_events("s", EventQuery(keywords="rare 77."))] == [
            78
        ]

    def test_keywords_are_substrings_in_any_form(self) -> None:
        """Case, accents as they were typed, short ones, and what means something to an engine."""
        sessions = self._filled()
        texts = ["STRASSE", "cafe\u0301", "100% _sure_ AND 'quoted' -x", "漢字", "nul\0nul"]
        sessions.append_events("s", [NewEvent(message=Message.user(text)) for text in texts])
        for keyword in ("straße", "CAFÉ", "0% _su", "AND 'quo", "字", "l\0n"):
            assert len(sessions.search_events("s", EventQuery(keywords=keyword))) == 1, keyword

    def test_any_and_all_of_several_keywords(self) -> None:
        """`any` takes one of them, `all` each."""
        sessions = self._filled()
        both = ["rare 7.", "rare 8."]
        assert len(sessions.search_events("s", EventQuery(keywords=both, match="any"))) == 2
        assert not sessions.search_events("s", EventQuery(keywords=both, match="all"))
        assert len(sessions.search_events("s", EventQuery(keywords=["rare 7.", "common"], match="all"))) == 1

    def test_covered_messages_are_found(self) -> None:
        """And said to be outside the view."""
        sessions = self._filled()
        strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1))
        sessions.compact("s", TurnCountTrigger(1), strategy)
        (found,) = sessions.search_events("s", EventQuery(keywords="rare 7."))
        assert found.archived

    def test_a_long_message_is_taken_and_found(self) -> None:
        """No size is refused for the sake of an index."""
        sessions = self._filled()
        sessions.append_message("s", Message.user("x " * 500_000 + "needle"))
        sessions.append_events("s", [NewEvent(message=Message.user("noted"))] * MANY)
        assert len(sessions.search_events("s", EventQuery(keywords="needle"))) == 1

    def test_only_sessions_of_the_principal_are_searched(self) -> None:
        """A scope hides the others."""
        sessions = self.service()
        for name in ("ada", "bob"):
            sessions.create(name, metadata={SessionAttributes.PRINCIPAL_NAME: name})
            sessions.append_message(name, Message.user("the parcel"))
        found = sessions.scoped_to("ada").search_all(EventQuery(keywords="parcel"))
        assert [event.session_id for event in found] == ["ada"]
        assert len(sessions.search_all(EventQuery(keywords="parcel"))) == 2

    def test_a_deleted_session_is_found_no_more(self) -> None:
        """Not by the service that deleted it, and not by another."""
        sessions = self._filled()
        sessions.delete("s", erase=False)
        for service in (sessions, self.service()):
            assert service.search_events("s", EventQuery(keywords="common")) == ()
            assert service.search_all(EventQuery(keywords="common")) == ()

    def _filled(self) -> SessionService:
        sessions = self.service()
        sessions.create("s")
        sessions.append_events(
            "s", [NewEvent(message=Message.user(f"common, rare {number}.")) for number in range(MANY)]
        )
        return sessions
