"""`compact` with each strategy, and `strategies`, which lists them."""

from __future__ import annotations

import pytest
from tests.infrastructure.cli.conftest import OpenService, Turnlog

from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionStrategy
from turnlog.domain.extractive import ExtractiveSummarizer
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message


def told(turnlog: Turnlog, session_id: str) -> list[int]:
    events = turnlog("log", session_id, "--limit", 100, "--json").json
    return [event["version"] for event in events if event.get("in_view")]


@pytest.fixture
def branched(open_service: OpenService) -> None:
    """A session whose sub-agent `orch.reader` has three turns."""
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("Compare three hotels."))
        for number in range(3):
            turn = (Message.user(f"Read {number}."), Message.assistant("It is quiet."))
            sessions.append_events("s", [NewEvent(message, branch="orch.reader") for message in turn])


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        (("sliding",), SlidingWindowCompactionStrategy()),
        (("sliding", "--max-events", 6), SlidingWindowCompactionStrategy(6)),
        (("turns",), TurnWindowCompactionStrategy()),
        (("turns", "--max-turns", 2), TurnWindowCompactionStrategy(2)),
        (("tokens",), TokenCountCompactionStrategy()),
        (("tokens", "--max-tokens", 2500), TokenCountCompactionStrategy(2500)),
    ],
    ids=str,
)
def test_compact_does_what_the_strategy_does(
    turnlog: Turnlog,
    imported: str,
    open_service: OpenService,
    options: tuple[object, ...],
    strategy: CompactionStrategy,
) -> None:
    before = turnlog("export", imported).out

    assert turnlog("compact", imported, "--strategy", *options).status == 0

    by_the_command = told(turnlog, imported)
    with open_service() as sessions:
        sessions.create("twin")
        messages = sessions.view(imported, at_version=62).messages
        sessions.append_events("twin", list(messages))
        sessions.compact("twin", None, strategy)
    assert by_the_command == told(turnlog, "twin")
    assert turnlog("export", imported).out.startswith(before)


def test_a_second_pass_with_the_same_size_has_nothing_to_do(turnlog: Turnlog, imported: str) -> None:
    turnlog("compact", imported, "--strategy", "turns", "--max-turns", 2)

    assert turnlog("compact", imported, "--strategy", "turns", "--max-turns", 2).status == 1


@pytest.mark.parametrize("option", ["--max-events", "--max-turns", "--max-tokens"])
def test_a_size_of_another_strategy_is_refused_with_where_it_goes(
    turnlog: Turnlog, imported: str, option: str
) -> None:
    result = turnlog("compact", imported, option, 3)

    assert (result.status, f"{option} goes with --strategy" in result.err) == (2, True)
    assert len(told(turnlog, imported)) == 62


def test_a_refused_size_is_named_before_the_database_is_opened(turnlog: Turnlog) -> None:
    assert turnlog("compact", "@last", "--max-turns", 3).status == 2


def test_a_pass_of_a_branch_covers_what_the_branch_said(turnlog: Turnlog, branched: None) -> None:
    result = turnlog("compact", "s", "--branch", "orch.reader", "--last-turns", 1, "--json")

    assert (result.status, result.json["branch"], result.json["covered"]) == (0, "orch.reader", 4)
    assert told(turnlog, "s") == [1, 6, 7]


def test_a_pass_of_a_branch_that_said_nothing_has_nothing_to_do(turnlog: Turnlog, branched: None) -> None:
    result = turnlog("compact", "s", "--branch", "orch.writer", "--last-turns", 1)

    assert (result.status, "s, branch orch.writer" in result.out) == (1, True)


def test_a_branch_with_an_empty_segment_is_bad_input(turnlog: Turnlog, branched: None) -> None:
    assert turnlog("compact", "s", "--branch", "orch..reader").status == 5


def test_every_strategy_that_is_listed_is_accepted_in_each_of_its_sizes(
    turnlog: Turnlog, imported: str
) -> None:
    for row in turnlog("strategies", "--json").json:
        summarizer = ("--summarizer", "extractive") if row["strategy"] == "recursive" else ()
        result = turnlog(
            "compact", imported, "--strategy", row["strategy"], row["option"], 10**6, *summarizer
        )

        assert result.status == 1, row


def test_the_defaults_that_are_listed_are_those_of_the_strategies(turnlog: Turnlog) -> None:
    rows = turnlog("strategies", "--json").json

    assert {row["option"]: row["default"] for row in rows if row["default"]} == {
        "--last-events": 20,
        "--max-events": SlidingWindowCompactionStrategy().max_events,
        "--max-turns": TurnWindowCompactionStrategy().max_turns,
        "--max-tokens": TokenCountCompactionStrategy().max_tokens,
        "--keep-events": RecursiveSummarizationCompactionStrategy(ExtractiveSummarizer()).max_events_to_keep,
    }


def test_strategies_need_no_database(turnlog: Turnlog) -> None:
    result = turnlog("strategies")

    assert (result.status, "sliding" in result.out, "4,000" in result.out) == (0, True, True)


def test_an_extractive_summary_stands_for_what_leaves(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("compact", imported, "--last-turns", 2, "--summarizer", "extractive")

    assert (result.status, "a summary stands for the rest" in result.out) == (0, True)
    assert "Digest of what was said before" in turnlog("view", imported).out


def test_a_summarizer_goes_with_the_window_only(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("compact", imported, "--strategy", "turns", "--summarizer", "extractive")

    assert (result.status, "--summarizer goes with --strategy window" in result.err) == (2, True)
