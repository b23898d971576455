"""What was in the view when, what changed between two moments, and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.audit.conftest import SID
from tests.audit.logs import WordCount, compact, say_turns
from tests.branches.random_logs import Summarizer

from turnlog.application.audit import NoSummaryError, Reason, SessionAudit, Standing
from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionResult, SummaryRequest
from turnlog.domain.errors import (
    InvalidSettingError,
    NaiveTimeError,
    SessionNotFoundError,
    UnknownEventError,
    UnknownVersionError,
)
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

BEGIN = datetime(2031, 5, 1, 8, tzinfo=UTC)


def _three_passes(sessions: SessionService) -> list[CompactionResult]:
    results: list[CompactionResult] = []
    for first in range(3):
        say_turns(sessions, SID, first * 2, 2)
        results.append(compact(sessions, SID))
    return results


def test_the_view_at_every_version_is_the_view_of_the_service_then(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 3)
    compact(sessions, SID)
    say_turns(sessions, SID, 3, 2)
    for version in range(sessions.version(SID) + 1):
        assert audit.view_at(SID, version).view.ids == sessions.view(SID, at_version=version).ids


def test_a_view_says_why_each_message_is_in_it(sessions: SessionService, audit: SessionAudit) -> None:
    sessions.append_message(SID, Message.system("Be kind."))
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID)
    say_turns(sessions, SID, 2, 1)
    standings = [entry.standing for entry in audit.view_at(SID).entries]
    assert standings == [
        Standing.PINNED,
        Standing.SUMMARY,
        Standing.SUMMARY,
        Standing.PRESERVED,
        Standing.PRESERVED,
        Standing.SINCE,
        Standing.SINCE,
    ]


def test_the_view_at_a_time_is_that_of_the_last_event_recorded_by_then() -> None:
    now = BEGIN
    sessions = SessionService(token_estimator=WordCount(), clock=lambda: now)
    sessions.create(SID)
    for number in range(4):
        now = BEGIN + timedelta(minutes=number)
        sessions.append_message(SID, Message.user(f"{number}"))
    found = SessionAudit(sessions).view_at(SID, BEGIN + timedelta(minutes=1, seconds=30))
    assert [message.text for message in found.messages] == ["0", "1"]


def test_the_view_at_an_event_is_the_one_right_behind_it(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 3)
    assert audit.view_at(SID, "u1").view.ids == ("u0", "a0", "u1")


@pytest.mark.parametrize("moment", [99, -1, BEGIN - timedelta(days=9999)])
def test_a_moment_that_never_was_is_refused(audit: SessionAudit, moment: int | datetime) -> None:
    with pytest.raises(UnknownVersionError):
        audit.view_at(SID, moment)


def test_an_unknown_id_is_refused(audit: SessionAudit) -> None:
    with pytest.raises(UnknownEventError):
        audit.view_at(SID, "nothing")


def test_a_time_without_offset_is_refused(audit: SessionAudit) -> None:
    with pytest.raises(NaiveTimeError):
        audit.view_at(SID, datetime(2031, 1, 1))


def test_what_is_no_moment_is_refused(audit: SessionAudit) -> None:
    with pytest.raises(InvalidSettingError):
        audit.view_at(SID, True)


def test_a_session_that_was_deleted_has_no_views(sessions: SessionService, audit: SessionAudit) -> None:
    sessions.delete(SID)
    with pytest.raises(SessionNotFoundError):
        audit.view_at(SID)


def test_a_difference_names_the_boundary_that_covered_each_message(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    before = sessions.version(SID)
    first = compact(sessions, SID)
    say_turns(sessions, SID, 2, 1)
    second = compact(sessions, SID)
    found = audit.diff(SID, before, sessions.version(SID))
    assert first.boundary is not None
    assert second.boundary is not None
    by = {left.event.id: left.boundary.version if left.boundary else None for left in found.left}
    assert by == {
        "u0": first.boundary.version,
        "a0": first.boundary.version,
        "u1": second.boundary.version,
        "a1": second.boundary.version,
    }


def test_a_difference_says_which_summary_came_with_which_boundary(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    before = sessions.version(SID)
    result = compact(sessions, SID)
    assert result.boundary is not None
    came = audit.diff(SID, before, sessions.version(SID)).came
    assert [(one.event.synthetic, one.boundary and one.boundary.version) for one in came] == [
        (True, result.boundary.version)
    ] * 2


def test_a_difference_backwards_is_the_same_the_other_way_round(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    before = sessions.version(SID)
    compact(sessions, SID)
    there = audit.diff(SID, before, sessions.version(SID))
    back = audit.diff(SID, sessions.version(SID), before)
    assert [one.event for one in there.left] == [one.event for one in back.came]
    assert [one.boundary for one in there.left] == [one.boundary for one in back.came]


def test_a_moment_and_itself_do_not_differ(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 1)
    assert audit.diff(SID, 2, 2).is_empty


# --- why


def test_a_message_that_nothing_covered_is_in_the_view(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 1)
    found = audit.explain(SID, "u0")
    assert (found.in_view, found.reason, found.boundary) == (True, Reason.SINCE, None)


def test_an_event_of_the_application_is_never_in_the_view(
    sessions: SessionService, audit: SessionAudit
) -> None:
    event = sessions.append_event(SID, "ACME.AUDIT", {})
    assert audit.explain(SID, event.id).reason is Reason.NO_MESSAGE


def test_a_message_is_not_in_a_view_of_before_it(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 1)
    assert audit.explain(SID, "a0", 1).reason is Reason.NOT_YET


def test_a_covered_message_names_its_boundary_and_stands_in_the_summary(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    result = compact(sessions, SID)
    say_turns(sessions, SID, 2, 30)
    found = audit.explain(SID, "u0")
    assert result.boundary is not None
    assert found.boundary is not None
    assert (found.reason, found.boundary.version) == (Reason.COVERED, result.boundary.version)
    assert [ref.id for ref in found.stands_in] == [event.id for event in result.summary_events]


def test_a_covered_message_is_followed_through_later_summaries(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID)
    say_turns(sessions, SID, 2, 2)
    newest = compact(sessions, SID)
    found = audit.explain(SID, "u0")
    assert [ref.id for ref in found.stands_in] == [event.id for event in newest.summary_events]
    assert "through 2 summaries" in found.sentence


def test_a_message_that_was_covered_without_a_summary_stands_nowhere(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID, summarized=False)
    found = audit.explain(SID, "u0")
    assert found.stands_in == ()
    assert "no summary" in found.sentence


def test_a_covered_message_was_in_the_view_before(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID)
    assert audit.explain(SID, "u0", 4).in_view


def test_a_pinned_message_says_why(sessions: SessionService, audit: SessionAudit) -> None:
    sessions.append_message(SID, Message.system("Be kind."), event_id="rule")
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID)
    found = audit.explain(SID, "rule")
    assert found.reason is Reason.PINNED
    assert "because it is a system message" in found.sentence


def test_a_message_whose_call_awaits_its_result_says_so(
    sessions: SessionService, audit: SessionAudit
) -> None:
    call = ToolCallPart(id="c7", name="pay", awaiting=True)
    sessions.append_message(SID, Message.user("Pay."))
    sessions.append_message(SID, Message.assistant([call]), event_id="k")
    assert any("'c7' awaits" in note for note in audit.explain(SID, "k").notes)


def test_a_system_message_that_is_superseded_says_so(sessions: SessionService, audit: SessionAudit) -> None:
    sessions.append_message(SID, Message.system("old"), event_id="old")
    sessions.append_message(SID, Message.system("new"))
    assert any("not sent" in note for note in audit.explain(SID, "old").notes)


# --- what summaries stand for


def test_a_summary_stands_for_what_its_boundary_covered(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 3)
    result = compact(sessions, SID)
    found = audit.lineage(SID, result.summary_events[0].id)
    assert [ref.id for ref in found.originals] == ["u0", "a0", "u1", "a1"]


def test_a_summary_stands_for_messages_through_earlier_summaries(
    sessions: SessionService, audit: SessionAudit
) -> None:
    results = _three_passes(sessions)
    found = audit.lineage(SID, results[-1].summary_events[-1].id)
    assert [ref.id for ref in found.originals] == [f"{who}{n}" for n in range(5) for who in "ua"]
    assert len(found.through) == len(found.through[0].through) == 1


def test_a_summary_of_a_branch_stands_for_messages_of_the_branch(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 1)
    for number in range(3):
        sessions.append_message(SID, Message.user(f"find {number}"), branch="find", event_id=f"f{number}")
    strategy = WindowCompactionStrategy(CompactionWindow.last_turns(1), summarizer=Summarizer())
    result = sessions.compact(SID, None, strategy, branch="find")
    found = audit.lineage(SID, result.summary_events[0].id)
    assert [ref.id for ref in found.originals] == ["f0", "f1"]


class Telling:
    """A summarizer that says how it wrote."""

    def summarize(self, request: SummaryRequest) -> list[Message]:  # noqa: ARG002 - it says the same always
        """One message."""
        about = {"name": "ours", "model": "m-1", "prompt_sha256": "ab", "usage": {"input_tokens": 7}}
        return [Message.user("So far?"), Message.assistant("Short.", metadata={"summarizer": about})]


def test_a_lineage_says_how_the_summary_was_written(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 2)
    window = CompactionWindow.last_turns(1)
    result = sessions.compact(SID, None, WindowCompactionStrategy(window, summarizer=Telling()))
    found = audit.lineage(SID, result.summary_events[0].id)
    assert (found.summarizer, found.model, found.prompt_sha256) == ("ours", "m-1", "ab")
    assert found.usage == {"input_tokens": 7}


def test_what_no_compaction_wrote_has_no_lineage(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 1)
    with pytest.raises(NoSummaryError):
        audit.lineage(SID, "u0")


def test_a_message_is_carried_on_by_each_summary_that_stands_for_it(
    sessions: SessionService, audit: SessionAudit
) -> None:
    results = _three_passes(sessions)
    carried = audit.carried(SID, "u0").summaries
    assert [one.boundary.version for one in carried] == [
        result.boundary.version for result in results if result.boundary
    ]
    assert [one.in_view for one in carried] == [False, False, True]


# --- the course


def test_the_timeline_has_turns_and_boundaries_with_the_view_behind_each(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID)
    say_turns(sessions, SID, 2, 1)
    found = audit.timeline(SID)
    assert [(entry.kind, entry.messages) for entry in found.entries] == [
        ("turn", 1),
        ("turn", 3),
        ("boundary", 4),
        ("turn", 5),
    ]
    assert (found.turns, found.calls, found.boundaries) == (3, 0, 1)


def test_the_tokens_of_a_timeline_are_those_that_a_trigger_sees(
    sessions: SessionService, audit: SessionAudit
) -> None:
    sessions.append_message(SID, Message.system("old rules that are long"))
    sessions.append_message(SID, Message.system("new rules"))
    say_turns(sessions, SID, 0, 2)
    compact(sessions, SID)
    sessions.append_message(SID, Message.user("the end"))
    assert audit.timeline(SID).entries[-1].tokens == sessions.usage(SID).tokens


def test_answers_can_be_told_as_json(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 2)
    result = compact(sessions, SID)
    answers = [
        audit.view_at(SID),
        audit.diff(SID, 1, 3),
        audit.explain(SID, "u0"),
        audit.lineage(SID, result.summary_events[0].id),
        audit.carried(SID, "u0"),
        audit.timeline(SID),
        audit.verify(),
    ]
    for answer in answers:
        assert json.loads(json.dumps(answer.to_dict())) == answer.to_dict()
