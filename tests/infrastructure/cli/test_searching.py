"""`search` finds what was said and shows where."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.infrastructure.cli.conftest import OpenService, Turnlog

from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import searchable
from turnlog.infrastructure.cli.searching import excerpt, place_of


def versions(turnlog: Turnlog, *arguments: object) -> list[int]:
    return [event["version"] for event in turnlog("search", *arguments, "--json").json]


@pytest.fixture
def branched(open_service: OpenService) -> None:
    """A session with a message of the root, one of `orch.reader` and one of `orch.writer`."""
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_events(
            "s",
            [
                Message.user("Compare two hotels."),
                NewEvent(Message.user("Read about hotels."), branch="orch.reader"),
                NewEvent(Message.user("Write about hotels."), branch="orch.writer"),
            ],
        )


def test_a_hit_is_shown_with_time_session_version_and_role(
    turnlog: Turnlog, imported: str, open_service: OpenService
) -> None:
    with open_service() as sessions:
        said = sessions.get_events(imported)[1].timestamp

    lines = turnlog("search", "quickest one").out.splitlines()

    assert lines[0] == f"{said:%Y-%m-%d %H:%M}  {imported}  user  version 2"
    assert "to be the quickest one on May 27." in lines[1]


@pytest.mark.parametrize("word", ["@last", "ada-1"])
@pytest.mark.usefixtures("of_two_principals")
def test_a_first_word_that_names_a_session_gets_a_note(turnlog: Turnlog, word: str) -> None:
    result = turnlog("search", word, "parcel")

    assert f"`--session {word}` searches in that session only" in result.err
    assert "parcel" in result.out


@pytest.mark.parametrize(
    "arguments", [("parcel", "ada-1"), ("ada",), ("@last", "--json"), ("@last", "--session", "ada-1")]
)
@pytest.mark.usefixtures("of_two_principals")
def test_a_search_gets_no_note_without_need(turnlog: Turnlog, arguments: tuple[str, ...]) -> None:
    assert turnlog("search", *arguments).err == ""


def test_nothing_found_says_so_with_status_1(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("search", "zeppelin")

    assert (result.status, result.out) == (1, "Nothing was found.\n")


def test_nothing_found_as_json_is_an_empty_array_with_status_1(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("search", "zeppelin", "--json")

    assert (result.status, result.json) == (1, [])


def test_what_left_the_view_is_found_and_marked(turnlog: Turnlog, imported: str) -> None:
    turnlog("compact", imported, "--last-turns", 1)

    result = turnlog("search", "quickest one")

    assert "version 2 · no longer in the view" in result.out


def test_one_of_several_terms_is_enough(turnlog: Turnlog, of_two_principals: None) -> None:
    assert versions(turnlog, "parcel", "lund", "--session", "ada-1") == [1, 2]


def test_with_all_terms_each_must_be_there(turnlog: Turnlog, of_two_principals: None) -> None:
    found = turnlog("search", "parcel", "ada", "--all-terms", "--json").json

    assert [event["session"] for event in found] == ["ada-1", "ada-2"]


def test_an_argument_is_one_phrase(turnlog: Turnlog, of_two_principals: None) -> None:
    assert turnlog("search", "my parcel").status == 0
    assert turnlog("search", "parcel my").status == 1


@pytest.mark.parametrize("query", ["%", "_", "*", "parcel OR lund", "p.rcel", '"', "a:b", "NEAR(a b)"])
def test_no_character_of_a_query_is_a_pattern(turnlog: Turnlog, of_two_principals: None, query: str) -> None:
    assert turnlog("search", query).status == 1


def test_a_word_that_begins_as_an_option_stands_behind_two_dashes(
    turnlog: Turnlog, open_service: OpenService
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("Use tar --json -x."))

    assert "tar --json -x" in turnlog("search", "--", "-x").out


@pytest.mark.parametrize("query", ["LUND", "straße", "STRASSE", "CAFE\u0301", "東京", "😀", "北"])
def test_case_and_encoding_make_no_difference(
    turnlog: Turnlog, open_service: OpenService, query: str
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("From Lund, Straße 1, Caf\xe9 東京 😀, 北."))

    assert turnlog("search", query).status == 0


def test_only_the_sessions_of_the_principal_are_searched(turnlog: Turnlog, of_two_principals: None) -> None:
    found = turnlog("search", "parcel", "--principal", "ada", "--json").json

    assert [event["session"] for event in found] == ["ada-1", "ada-2"]


def test_the_session_of_another_principal_is_not_found(turnlog: Turnlog, of_two_principals: None) -> None:
    result = turnlog("search", "parcel", "--principal", "ada", "--session", "bob-1")

    assert (result.status, "'bob-1' was not found" in result.err) == (3, True)


def test_only_the_session_that_is_named_is_searched(turnlog: Turnlog, of_two_principals: None) -> None:
    found = turnlog("search", "parcel", "--session", "bob", "--json").json

    assert [event["session"] for event in found] == ["bob-1"]


def test_roles_can_be_repeated(turnlog: Turnlog, of_two_principals: None) -> None:
    search = ("parcel", "lund", "--session", "ada-1")

    assert versions(turnlog, *search, "--role", "assistant") == [2]
    assert versions(turnlog, *search, "--role", "assistant", "--role", "user") == [1, 2]


def test_a_branch_sees_itself_and_what_is_above_it(turnlog: Turnlog, branched: None) -> None:
    assert versions(turnlog, "hotels", "--branch", "orch.reader") == [1, 2]


def test_the_branch_of_a_hit_is_shown(turnlog: Turnlog, branched: None) -> None:
    assert "user  version 3 · branch orch.writer" in turnlog("search", "write").out


def test_a_branch_with_an_empty_segment_is_bad_input(turnlog: Turnlog, branched: None) -> None:
    assert turnlog("search", "hotels", "--branch", "orch..reader").status == 5


def test_since_asks_when_it_was_said_not_when_it_was_stored(
    turnlog: Turnlog, open_service: OpenService
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        for day in (1, 9):
            said = datetime(2020, 5, day, 8, tzinfo=UTC)
            sessions.append_events("s", [NewEvent(Message.user("parcel"), occurred_at=said)])

    assert versions(turnlog, "parcel", "--since", "2020-05-09T08:00") == [2]
    assert turnlog("search", "parcel", "--since", "2020-05-09T10:00+02:00").out.startswith("2020-05-09 08:00")


def test_nothing_was_said_since_a_time_to_come(turnlog: Turnlog, of_two_principals: None) -> None:
    later = datetime.now(UTC) + timedelta(days=1)

    assert turnlog("search", "parcel", "--since", later.isoformat()).status == 1


def test_pages_hold_each_hit_once(turnlog: Turnlog, imported: str) -> None:
    whole = versions(turnlog, "flight", "--page-size", 100)

    pages = [versions(turnlog, "flight", "--page-size", 3, "--page", page) for page in range(20)]

    assert len(whole) > 6
    assert [version for page in pages for version in page] == whole


def test_a_page_says_whether_there_are_more(turnlog: Turnlog, of_two_principals: None) -> None:
    assert "There are more: --page 1" in turnlog("search", "parcel", "--page-size", 2).out
    assert "There are more" not in turnlog("search", "parcel", "--page-size", 3).out
    assert "There are more" not in turnlog("search", "parcel", "--page-size", 2, "--page", 1).out


def test_a_page_behind_the_last_one_says_so_with_status_1(turnlog: Turnlog, of_two_principals: None) -> None:
    result = turnlog("search", "parcel", "--page", 10**18)

    assert (result.status, "There is no page" in result.out) == (1, True)


def test_a_deleted_session_is_not_found_any_more(turnlog: Turnlog, of_two_principals: None) -> None:
    turnlog("delete", "bob-1", "--yes")

    assert turnlog("search", "says bob").status == 1


@given(st.text(max_size=40), st.text(min_size=1, max_size=10), st.text(max_size=40))
def test_the_place_of_a_hit_holds_the_term(before: str, word: str, after: str) -> None:
    text, term = before + word + after, searchable(word)
    if term not in searchable(text):
        return

    start, end = place_of(text, [term])

    assert term in searchable(text[start:end])


def test_the_place_is_that_of_the_first_term_that_stands_there() -> None:
    assert place_of("in Lund, not in Ystad", ["ystad", "lund", "malmö"]) == (3, 7)


def test_the_place_of_a_folded_term_is_that_of_its_letters() -> None:
    text = unicodedata.normalize("NFD", "Café, Straße")

    start, end = place_of(text, [searchable("STRASSE")])

    assert text[start:end] == "Straße"


@given(st.text(max_size=300), st.integers(0, 300), st.integers(1, 20), st.integers(20, 160))
def test_an_excerpt_fits_its_cells_and_is_one_line(text: str, start: int, length: int, room: int) -> None:
    term = searchable(text[start : start + length])

    shown = excerpt(text, [term] if term.strip() else [], room).plain

    assert cell_len(shown) <= room
    assert "\n" not in shown


@pytest.mark.parametrize("number", [1000, 1001, 1500, 1998, 1999])
def test_an_excerpt_shows_the_hit_wherever_it_stands(number: int) -> None:
    text = " ".join(f"word{number}" for number in range(1000, 2000))

    shown = excerpt(text, [f"word{number}"], 70).plain

    assert f"word{number}" in shown
    assert cell_len(shown) >= 69
