"""Passes of branches on small logs: what triggers count, what is covered, where the summary stands."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.branches.random_logs import Summarizer
from tests.laws.machine import CountedCharacters

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionRequest, CompactionResult
from turnlog.domain.errors import InvalidIdError, SessionNotFoundError
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.triggers import TokenCountTrigger, TurnCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "s"
NEWEST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))
SUMMARIZED = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer())
NAMES: Mapping[str, str | None] = {"r": None, "a": "a", "b": "a.b", "d": "d", "t": "agent_1", "u": "agent_10"}
"""The branch by the first letter of an id."""


@pytest.fixture
def sessions() -> SessionService:
    """One empty session."""
    service = SessionService(token_estimator=CountedCharacters())
    service.create(SID)
    return service


def say(sessions: SessionService, *ids: str) -> None:
    """User messages of these ids, each of the branch that its first letter names."""
    sessions.append_events(
        SID, [NewEvent(message=Message.user(name), id=name, branch=NAMES[name[0]]) for name in ids]
    )


def shown(sessions: SessionService) -> list[str | None]:
    """The view: ids, and what summaries say."""
    return [event.text if event.synthetic else event.id for event in sessions.view(SID).events]


def test_what_a_pass_of_a_branch_covers_vanishes_where_it_stands(sessions: SessionService) -> None:
    say(sessions, "r1", "a1", "b1", "a2", "d1", "a3", "r2")
    sessions.compact(SID, None, NEWEST_TURN, branch="a")
    assert shown(sessions) == ["r1", "b1", "d1", "a3", "r2"]


def test_the_summary_stands_in_front_of_the_first_own_message_behind_what_it_sums_up(
    sessions: SessionService,
) -> None:
    say(sessions, "a1", "r1", "a2", "d1", "b1", "a3", "r2")
    sessions.compact(SID, None, SUMMARIZED, branch="a")
    assert shown(sessions) == ["r1", "d1", "b1", "so far?", "summary of a", "a3", "r2"]


def test_with_no_own_message_behind_it_the_summary_stands_where_the_last_covered_one_stood(
    sessions: SessionService,
) -> None:
    say(sessions, "a1", "a2", "r1")
    recap = NewEvent(message=Message.assistant("earlier"), branch="a", synthetic=True)
    sessions.append_event(SID, recap)
    say(sessions, "d1")
    sessions.compact(SID, None, SUMMARIZED, branch="a")
    assert shown(sessions) == ["a2", "r1", "so far?", "summary of a", "d1"]


def test_the_summary_never_stands_between_a_call_and_its_result(sessions: SessionService) -> None:
    say(sessions, "a1", "d1", "a2")
    for name, message in (
        ("a3", Message.assistant([ToolCallPart(id="c", name="f")])),
        ("s1", Message.system("old")),
        ("a4", Message.tool([ToolCallResponsePart(id="c", response="ok")])),
        ("s2", Message.system("new")),
    ):
        sessions.append_message(SID, message, event_id=name, branch="a")
    sessions.compact(SID, None, SUMMARIZED, branch="a")
    assert shown(sessions) == ["d1", "so far?", "summary of a", "a2", "a3", "a4", "s2"]


class OnlySummary:
    """A strategy that covers nothing and adds a summary."""

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Everything stays."""
        summary = (Message.assistant("so far"),)
        return CompactionResult(CompactionReason.COMPACTED, preserved_events=request.events, summary=summary)


def test_a_strategy_may_add_a_summary_and_cover_nothing(sessions: SessionService) -> None:
    say(sessions, "r1", "a1", "d1")
    sessions.compact(SID, None, OnlySummary(), branch="a")
    assert [message.text for message in sessions.view(SID).told("a")] == ["r1", "so far", "a1"]


@pytest.mark.parametrize("branch", ["", ".", "a.", "a..b"])
def test_nothing_is_told_to_a_malformed_branch(sessions: SessionService, branch: str) -> None:
    say(sessions, "a1")
    with pytest.raises(InvalidIdError):
        sessions.view(SID).told(branch)


def test_the_boundary_names_the_whole_view_in_front_of_the_summary_and_behind_it(
    sessions: SessionService,
) -> None:
    say(sessions, "r1", "a1", "d1", "a2", "r2")
    result = sessions.compact(SID, None, SUMMARIZED, branch="a")
    assert result.boundary is not None
    boundary = result.boundary.boundary
    assert boundary is not None
    assert (boundary.pinned, boundary.preserved, boundary.branch) == (("r1", "d1"), ("a2", "r2"), "a")


def test_a_pass_of_a_branch_whose_name_begins_like_anothers_leaves_that_one_alone(
    sessions: SessionService,
) -> None:
    say(sessions, "t1", "u1", "t2", "u2")
    sessions.compact(SID, None, NEWEST_TURN, branch="agent_1")
    assert shown(sessions) == ["u1", "t2", "u2"]


def test_a_session_that_lives_on_a_branch_alone_is_compacted(sessions: SessionService) -> None:
    say(sessions, *(f"d{number}" for number in range(30)))
    root = sessions.compact(SID, TurnCountTrigger(20), NEWEST_TURN)
    assert root.reason is CompactionReason.TRIGGER_DID_NOT_FIRE
    sessions.compact(SID, TurnCountTrigger(20), NEWEST_TURN, branch="d")
    assert shown(sessions) == ["d29"]


def test_a_turn_trigger_counts_the_turns_of_the_branch_alone(sessions: SessionService) -> None:
    say(sessions, "r1", "r2", "r3", "b1", "a1", "a2")
    asked = sessions.compact(SID, TurnCountTrigger(2), NEWEST_TURN, branch="a")
    assert asked.reason is CompactionReason.TRIGGER_DID_NOT_FIRE


def test_a_token_trigger_counts_all_that_the_branch_is_told(sessions: SessionService) -> None:
    costs: list[int] = []

    def note(request: CompactionRequest) -> bool:
        costs.append(request.cost_of_view())
        return TokenCountTrigger(9)(request)

    say(sessions, "r1", "a1", "b1", "d1", "a2")  # 3 tokens each: the root's one and two of its own
    result = sessions.compact(SID, note, NEWEST_TURN, branch="a")
    assert (costs, result.is_unchanged) == ([9], False)
    assert (result.tokens_before, result.tokens_after) == (9, 6)


def test_the_window_of_a_branch_is_taken_among_its_own_messages(sessions: SessionService) -> None:
    say(sessions, "a1", "r1", "r2", "a2", "b1", "b2", "a3", "d1")
    window = WindowCompactionStrategy(CompactionWindow.last_events(2))
    sessions.compact(SID, None, window, branch="a")
    assert shown(sessions) == ["r1", "r2", "a2", "b1", "b2", "a3", "d1"]


def test_the_latest_system_message_of_the_branch_stays_where_it_is(sessions: SessionService) -> None:
    for name, branch in (("s1", None), ("s2", "a"), ("s3", "a"), ("s4", "d")):
        sessions.append_message(SID, Message.system(name), event_id=name, branch=branch)
    say(sessions, "a1", "a2")
    sessions.compact(SID, None, NEWEST_TURN, branch="a")
    assert shown(sessions) == ["s1", "s3", "s4", "a2"]


def test_the_prior_summary_of_another_branch_is_left_alone(sessions: SessionService) -> None:
    say(sessions, "d1", "a1", "d2", "a2")
    sessions.compact(SID, None, SUMMARIZED, branch="d")
    sessions.compact(SID, None, SUMMARIZED, branch="a")
    say(sessions, "a3")
    sessions.compact(SID, None, SUMMARIZED, branch="a")
    assert shown(sessions) == ["so far?", "summary of d", "d2", "so far?", "summary of a", "a3"]


def test_calls_of_parallel_branches_are_paired_within_each_branch(sessions: SessionService) -> None:
    for name, branch, message in (
        ("a1", "a", Message.user("look")),
        ("d1", "d", Message.user("look")),
        ("a2", "a", Message.assistant([ToolCallPart(id="c", name="f")])),
        ("d2", "d", Message.assistant([ToolCallPart(id="c", name="f")])),
        ("a3", "a", Message.tool([ToolCallResponsePart(id="c", response="ok")])),
        ("d3", "d", Message.tool([ToolCallResponsePart(id="c", response="ok")])),
        ("a4", "a", Message.user("and?")),
    ):
        sessions.append_message(SID, message, event_id=name, branch=branch)
    sessions.compact(SID, None, NEWEST_TURN, branch="a")
    assert shown(sessions) == ["d1", "d2", "d3", "a4"]


def test_a_cut_of_the_root_that_would_part_a_call_of_a_branch_moves_back(sessions: SessionService) -> None:
    for name, branch, message in (
        ("r1", None, Message.user("one")),
        ("r2", None, Message.user("two")),
        ("k1", "a", Message.assistant([ToolCallPart(id="c", name="f")])),
        ("r3", None, Message.user("three")),
        ("t1", "a", Message.tool([ToolCallResponsePart(id="c", response="ok")])),
    ):
        sessions.append_message(SID, message, event_id=name, branch=branch)
    sessions.compact(SID, None, NEWEST_TURN)
    assert shown(sessions) == ["r2", "k1", "r3", "t1"]


def test_an_awaited_call_of_another_branch_holds_up_no_pass(sessions: SessionService) -> None:
    awaited = Message.assistant([ToolCallPart(id="c", name="f", awaiting=True)])
    sessions.append_message(SID, awaited, event_id="d0", branch="d")
    say(sessions, "a1", "a2")
    sessions.compact(SID, None, NEWEST_TURN, branch="a")
    assert shown(sessions) == ["d0", "a2"]


def test_a_branch_that_nobody_spoke_on_has_nothing_to_cover(sessions: SessionService) -> None:
    say(sessions, "r1", "r2")
    result = sessions.compact(SID, None, NEWEST_TURN, branch="nobody")
    assert (result.reason, sessions.version(SID)) == (CompactionReason.NOTHING_TO_COVER, 2)


@pytest.mark.parametrize("branch", ["", ".", "a.", ".a", "a..b", "\0", "\ud800", "x" * 201])
def test_a_malformed_branch_is_refused(sessions: SessionService, branch: str) -> None:
    say(sessions, "r1", "r2")
    with pytest.raises(InvalidIdError):
        sessions.compact(SID, None, NEWEST_TURN, branch=branch)


def test_a_pass_of_a_branch_of_no_session_is_refused(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.compact("nobody", None, NEWEST_TURN, branch="a")
