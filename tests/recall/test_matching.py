"""What is found, on every store: the same words with an index and without."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from eventsourcing.postgres import PostgresApplicationRecorder

from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.query import EventQuery
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "conversation"


def say(sessions: SessionService, *texts: str, fillers: int = 200) -> None:
    """A session that says these texts, then enough others that an index has taken them up."""
    sessions.create(SID)
    sessions.append_events(SID, [NewEvent(message=Message.user(text)) for text in texts])
    filler = NewEvent(message=Message.assistant("noted"))
    sessions.append_events(SID, [filler] * fillers)


def found(sessions: SessionService, *words: str, **criteria: object) -> list[str | None]:
    query = EventQuery(keywords=words, **criteria)  # type: ignore[arg-type]  # criteria of the test
    return [event.text for event in sessions.search_events(SID, query)]


DEPLOYED = 'run scripts/deploy.sh -f for ops@example.test, 61.2% said "AND" * a OR b \\ it\'s; x:y (z) ^q'


@pytest.mark.parametrize(
    "word",
    [
        "scripts/deploy.sh",
        "ops@example.test",
        "61.2%",
        '"',
        '"AND"',
        "AND",
        "a OR",
        "-f",
        "*",
        "\\",
        "it's",
        "x:y",
        "(z)",
        "^q",
        "; ",
        '.sh -f for ops@example.test, 61.2% said "AND" * a OR b \\ it\'s; x:y (z)',
    ],
)
def test_syntax_of_a_search_engine_is_only_text(sessions: SessionService, word: str) -> None:
    say(sessions, DEPLOYED, "nothing of that kind")
    assert found(sessions, word) == [DEPLOYED]


@pytest.mark.parametrize(
    "word", ["NEAR(run ops)", "text:run", "run*", "{run}", "run NOT ops", "run + ops", "'--"]
)
def test_syntax_that_nobody_said_finds_nothing(sessions: SessionService, word: str) -> None:
    say(sessions, DEPLOYED)
    assert found(sessions, word) == []


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("%", ["save 10% now"]),
        ("_", ["a_b"]),
        ("a_b", ["a_b"]),
        ("\\\\", ["c:\\\\temp"]),
        ("10%", ["save 10% now"]),
    ],
)
def test_percent_and_underscore_stand_for_themselves(
    sessions: SessionService, word: str, expected: list[str]
) -> None:
    say(sessions, "save 10% now", "a_b", "axb", "c:\\\\temp")
    assert found(sessions, word) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("明天下午三点开项目评审会议", ["评审会议", "会议", "会", "三点开"]),
        ("ｶﾞｽの料金を払った", ["ガス", "料金", "払"]),
        ("พัสดุอยู่ที่คลังสินค้าในเมืองลุนด์", ["คลังสินค้า", "ลุนด์", "ที"]),
        ("우편물이 도착했습니다", ["도착", "우편물"]),
        ("📦 ist da 👨‍👩‍👧", ["📦", "👨‍👩‍👧", "👩"]),
        ("a\0b and \ud83d alone", ["a\0b", "\ud83d", "\ud83d alone"]),
    ],
)
def test_words_of_scripts_without_blanks_are_found(
    sessions: SessionService, text: str, words: list[str]
) -> None:
    say(sessions, text)
    assert [found(sessions, word) for word in words] == [[text]] * len(words)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Привет, мир", "ПРИВЕТ"),
        ("nach ÄGYPTEN", "ägypten"),
        ("ISTANBUL", "istanbul"),
        ("İstanbul İş", "istanbul"),
        ("İstanbul İş", "İSTANBUL İŞ"),
        ("Isparta", "ıspARTA"),
        ("lange STRASSE", "straße"),
        ("straße", "STRASSE"),
        ("un cafe\u0301 noir", "caf\u00e9"),
        ("un caf\u00e9 noir", "cafe\u0301"),
        ("ὈΔΥΣΣΕΎΣ", "ὀδυσσεύς"),
    ],
)
def test_case_and_accents_are_compared_in_every_script(
    sessions: SessionService, text: str, word: str
) -> None:
    say(sessions, text, "something else")
    assert found(sessions, word) == [text]


def test_a_letter_with_an_accent_is_not_the_letter_without(sessions: SessionService) -> None:
    say(sessions, "un cafe\u0301 noir", "cafeteria")
    assert found(sessions, "cafe") == ["cafeteria"]


def test_a_covered_message_is_found_under_its_id(sessions: SessionService) -> None:
    sessions.create(SID)
    first = sessions.append_message(SID, Message.user("order number 4711"))
    for number in range(5):
        sessions.append_message(SID, Message.user(f"question {number}"))
    sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1)))
    (event,) = sessions.search_events(SID, EventQuery(keywords="4711"))
    assert (event, event.archived) == (first, True)


def summarized(sessions: SessionService) -> None:
    """Five compactions whose summaries all hold the word of one old message."""
    sessions.create(SID)
    for number in range(6):
        sessions.append_message(SID, Message.user("the kestrel depot" if number == 0 else "and then?"))
        summary = [Message.user("Recap?"), Message.assistant(f"Recap {number}: the kestrel depot")]
        window = CompactionWindow.last_turns(1)
        sessions.compact(SID, None, WindowCompactionStrategy(window, Fixed(summary)))


class Fixed:
    """A summarizer that always says the same."""

    def __init__(self, summary: list[Message]) -> None:
        self._summary = summary

    def summarize(self, request: SummaryRequest) -> list[Message]:  # noqa: ARG002 - the port's argument
        return self._summary


def test_summaries_are_found_with_what_they_sum_up(sessions: SessionService) -> None:
    summarized(sessions)
    assert found(sessions, "kestrel") == ["the kestrel depot"] + [
        f"Recap {number}: the kestrel depot" for number in range(1, 6)
    ]


def test_without_summaries_the_one_message_is_found_however_many_there_are(sessions: SessionService) -> None:
    summarized(sessions)
    assert found(sessions, "kestrel", include_synthetic=False) == ["the kestrel depot"]


def test_all_keywords_must_be_in_one_message(sessions: SessionService) -> None:
    say(sessions, "oak and cedar", "oak", "cedar")
    assert found(sessions, "oak", "cedar", match="all") == ["oak and cedar"]


def test_any_keyword_is_enough(sessions: SessionService) -> None:
    say(sessions, "oak and cedar", "elm", "cedar")
    assert found(sessions, "oak", "cedar") == ["oak and cedar", "cedar"]


def test_a_short_keyword_beside_a_long_one_counts_as_well(sessions: SessionService) -> None:
    say(sessions, "oak is ok", "oak", "ok")
    assert (found(sessions, "oak", "ok", match="all"), found(sessions, "oak", "ok")) == (
        ["oak is ok"],
        ["oak is ok", "oak", "ok"],
    )


def test_trigrams_that_stand_apart_are_no_word(sessions: SessionService) -> None:
    say(sessions, "kes est str tre rel", "kestrel")
    assert found(sessions, "kestrel") == ["kestrel"]


def test_characters_that_an_index_cannot_tell_apart_are_no_word(sessions: SessionService) -> None:
    say(sessions, "".join(chr(ord(character) + 31) for character in "评审会议"), "评审会议")
    assert found(sessions, "评审会议") == ["评审会议"]


def test_only_what_was_said_is_searched(sessions: SessionService) -> None:
    sessions.create(SID, metadata={"title": "secret heron"})
    call = ToolCallPart(id="1", name="find_heron", arguments='{"name":"heron"}')
    sessions.append_message(SID, Message.assistant([call]))
    sessions.append_message(SID, Message.tool("the heron is in Umea", id="1"))
    sessions.append_event(SID, "ACME.NOTE", {"text": "heron"})
    assert found(sessions, "heron") == []


def test_a_blank_text_is_never_found(sessions: SessionService) -> None:
    say(sessions, " \n ", "word", fillers=0)
    assert (found(sessions), found(sessions, "\n x")) == (["word"], [])


def test_roles_narrow_a_search(sessions: SessionService) -> None:
    sessions.create(SID)
    sessions.append_events(SID, [Message.user("oak"), Message.assistant("oak!"), Message.system("oak?")])
    assert found(sessions, "oak", roles=["assistant", "system"]) == ["oak!", "oak?"]


def test_a_branch_finds_its_own_messages_and_those_above_it(sessions: SessionService) -> None:
    sessions.create(SID)
    for branch in (None, "orch", "orch.researcher", "orch.res", "other"):
        sessions.append_message(SID, Message.user(f"oak {branch}"), branch=branch)
    assert found(sessions, "oak", branch="orch.researcher") == [
        "oak None",
        "oak orch",
        "oak orch.researcher",
    ]


def test_times_are_those_that_messages_claim_for_themselves(sessions: SessionService) -> None:
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    sessions.create(SID)
    for hour in range(4):
        sessions.append_message(SID, Message.user(f"oak {hour}"), occurred_at=noon + timedelta(hours=hour))
    since, until = noon + timedelta(hours=1), noon + timedelta(hours=2)
    assert found(sessions, "oak", since=since, until=until) == ["oak 1", "oak 2"]


def test_pages_follow_each_other_without_gaps(sessions: SessionService) -> None:
    say(sessions, *(f"oak {number}" for number in range(7)))
    pages = [found(sessions, "oak", page=page, page_size=3) for page in range(4)]
    assert pages == [["oak 0", "oak 1", "oak 2"], ["oak 3", "oak 4", "oak 5"], ["oak 6"], []]


@pytest.mark.parametrize("size", [1_000_000, 50_000_000])
def test_a_word_at_the_end_of_a_huge_message_is_found(sessions: SessionService, size: int) -> None:
    if size > 1_000_000 and sessions.capabilities.recall == "log":
        pytest.skip("no index has to hold it")
    if type(sessions.app.recorder) is PostgresApplicationRecorder:
        pytest.skip("the framework's recorder never returns from an append of this size")
    sessions.create(SID)
    sessions.append_message(SID, Message.user("x " * (size // 2) + "kestrel"), event_id="huge")
    sessions.append_events(SID, [NewEvent(message=Message.user("noted"))] * 200)
    assert ids(sessions.search_events(SID, EventQuery(keywords="kestrel"))) == ["huge"]


def ids(events: tuple[SessionEvent, ...]) -> list[str]:
    return [event.id for event in events]


def test_a_session_that_does_not_exist_is_like_an_empty_one(sessions: SessionService) -> None:
    assert sessions.search_events("nobody", EventQuery(keywords="oak")) == ()


def test_a_deleted_session_is_found_no_more(sessions: SessionService) -> None:
    say(sessions, "oak")
    sessions.delete(SID, erase=False)
    assert (found(sessions, "oak"), sessions.search_all(EventQuery(keywords="oak"))) == ([], ())
