"""For each command of the aggregate: it records the right events, refuses, stays quiet."""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta

import pytest
from tests.domain.given import (
    BEGIN,
    Command,
    abandoned,
    answered,
    asked,
    compacted,
    deleted,
    extended,
    given,
    metadata_updated,
    noted,
    recorded,
    said,
)

from turnlog.domain.errors import (
    CallNotAwaitedError,
    InvalidBoundaryError,
    InvalidEventError,
    InvalidIdError,
    InvalidSettingError,
    NaiveTimeError,
    NotJsonError,
    SessionNotFoundError,
)
from turnlog.domain.events import (
    CallAbandoned,
    Compacted,
    EventAppended,
    ExpiryMoved,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
)
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session
from turnlog.domain.state import AwaitedCall

HOUR = timedelta(hours=1)


# --- open


def test_opening_records_who_and_when_and_nothing_that_is_not_set() -> None:
    (event,) = Session.open("parcel", now=BEGIN).recorded
    assert isinstance(event, SessionOpened)
    assert set(vars(event)) == {
        "originator_id",
        "originator_version",
        "timestamp",
        "session_id",
        "nonce",
        "state",
        "chain",
    }
    assert (event.originator_id, event.originator_version) == (aggregate_id("parcel"), 0)


def test_opening_records_metadata_namespace_expiry_and_context() -> None:
    (event,) = Session.open(
        "parcel",
        now=BEGIN,
        namespace="acme",
        metadata={"title": "Lund"},
        expires_at=BEGIN + HOUR,
        context={"b": "2", "a": "1"},
    ).recorded
    assert isinstance(event, SessionOpened)
    assert (event.namespace, event.content) == ("acme", '{"title":"Lund"}')
    assert (event.expires_at, event.context) == ("2031-05-01T09:00:00+00:00", '{"a":"1","b":"2"}')


def test_an_idle_session_expires_so_long_after_it_was_opened() -> None:
    session = Session.open("parcel", now=BEGIN, idle=HOUR)
    assert session.state.expires_at == BEGIN + HOUR


def test_sessions_of_two_namespaces_are_two_aggregates() -> None:
    ids = {Session.open("parcel", now=BEGIN, namespace=name).id for name in ("", "acme", "other")}
    assert len(ids) == 3


@pytest.mark.parametrize("session_id", ["", "x" * 201, "a\0b", "a\ud800"])
def test_opening_refuses_a_malformed_id(session_id: str) -> None:
    with pytest.raises(InvalidIdError):
        Session.open(session_id, now=BEGIN)


@pytest.mark.parametrize("idle", [timedelta(0), -HOUR])
def test_opening_refuses_an_idle_time_that_is_not_positive(idle: timedelta) -> None:
    with pytest.raises(InvalidSettingError):
        Session.open("parcel", now=BEGIN, idle=idle)


def test_opening_refuses_an_expiry_without_an_offset() -> None:
    with pytest.raises(NaiveTimeError):
        Session.open("parcel", now=BEGIN, expires_at=datetime(2031, 5, 1))


def test_opening_refuses_metadata_that_are_not_json() -> None:
    with pytest.raises(NotJsonError, match=r"metadata\.cost"):
        Session.open("parcel", now=BEGIN, metadata={"cost": float("nan")})


# --- append


def test_a_message_is_recorded_with_its_role_beside_the_content() -> None:
    given().when(said("Where is my parcel?", "q1")).then(
        recorded(
            MessageAppended,
            event_id="q1",
            role="user",
            content='{"parts":[{"type":"text","content":"Where is my parcel?"}]}',
            branch=None,
            synthetic=None,
            opens=None,
        )
    )


def test_a_message_of_a_branch_says_so() -> None:
    given().when(said("look", branch="orch.researcher", synthetic=True)).then(
        recorded(MessageAppended, branch="orch.researcher", synthetic=1)
    )


def test_a_time_that_a_message_claims_is_recorded_as_utc() -> None:
    claimed = datetime.fromisoformat("2030-01-01T01:00:00+01:00")
    given().when(said("hi", occurred_at=claimed)).then(
        recorded(MessageAppended, occurred_at="2030-01-01T00:00:00+00:00")
    )


def test_an_event_of_the_application_is_recorded_with_its_payload() -> None:
    given().when(noted("ACME.AUDIT", {"ok": True})).then(
        recorded(EventAppended, type="ACME.AUDIT", content='{"ok":true}')
    )


def test_an_event_of_the_application_does_not_enter_the_view() -> None:
    session = given(said("hi")).when(noted("ACME.AUDIT", {})).session
    assert session.state.view == ((1, 1),)


def test_a_payload_that_is_not_json_is_refused() -> None:
    given().when(noted("ACME.AUDIT", {"set": {1, 2}})).then_refused(NotJsonError, r"payload\.set")


def test_a_boundary_cannot_be_appended() -> None:
    with pytest.raises(InvalidEventError, match="compact"):
        noted("COMPACTION", {})


def test_recorded_times_never_go_backwards() -> None:
    case = given(said("hi"))
    case.session.append(NewEvent(message=Message.user("late")), event_id="late", now=BEGIN - HOUR)
    assert case.session.modified_on == BEGIN + timedelta(seconds=1)


def test_user_and_assistant_messages_move_an_idle_expiry() -> None:
    session = given(said("hi"), said(Message.assistant("hello")), idle=HOUR).session
    assert session.state.expires_at == session.modified_on + HOUR


@pytest.mark.parametrize(
    "command",
    [
        said(answered("c1")),
        said(Message.system("be kind")),
        said("recap?", synthetic=True),
        noted("ACME.AUDIT", {}),
    ],
    ids=["tool", "system", "synthetic", "application"],
)
def test_nothing_else_moves_an_idle_expiry(command: Command) -> None:
    session = given(said("hi"), command, idle=HOUR).session
    assert session.state.expires_at == BEGIN + timedelta(seconds=1) + HOUR


# --- calls that await their result


def test_a_call_marked_as_awaiting_is_recorded_as_open() -> None:
    case = given(said("buy it")).when(said(asked("c1"))).then(recorded(MessageAppended, opens=["c1"]))
    assert case.session.state.awaited == (AwaitedCall(2, "c1", None),)


def test_a_call_that_is_not_marked_awaits_nothing() -> None:
    case = given().when(said(asked("c1", awaiting=False))).then(recorded(MessageAppended, opens=None))
    assert case.session.state.awaited == ()


def test_a_result_closes_the_awaited_call() -> None:
    case = (
        given(said(asked("c1"))).when(said(answered("c1"))).then(recorded(MessageAppended, closes=["1:c1"]))
    )
    assert case.session.state.awaited == ()


def test_a_provisional_result_keeps_the_call_open() -> None:
    case = given(said(asked("c1"))).when(said(answered("c1", provisional=True)))
    assert case.then(recorded(MessageAppended, closes=None)).session.state.awaited


def test_the_result_of_another_branch_closes_nothing() -> None:
    case = given(said(asked("c1"))).when(said(answered("c1"), branch="scout"))
    assert case.then(recorded(MessageAppended, closes=None)).session.state.awaited


def test_a_result_answers_the_newest_of_two_awaited_calls_of_one_id() -> None:
    case = given(said(asked("c1")), said(asked("c1"))).when(said(answered("c1")))
    assert case.session.state.awaited == (AwaitedCall(1, "c1", None),)


def test_a_later_call_of_the_same_id_hides_the_awaited_one() -> None:
    case = given(said(asked("c1"))).when(said(asked("c1", awaiting=False)))
    case.then(recorded(MessageAppended, hides=["1:c1"]))
    assert case.session.state.awaited == (AwaitedCall(1, "c1", None, hidden_by=1),)


def test_the_result_of_a_hiding_call_leaves_the_awaited_one_open() -> None:
    history = said(asked("c1")), said(asked("c1", awaiting=False)), said(answered("c1"))
    assert given(*history).session.state.awaited == (AwaitedCall(1, "c1", None),)


def test_the_second_result_closes_the_awaited_call_behind_the_hiding_one() -> None:
    history = said(asked("c1")), said(asked("c1", awaiting=False)), said(answered("c1"))
    assert given(*history, said(answered("c1"))).session.state.awaited == ()


def test_an_id_that_has_no_utf8_form_is_recorded_in_one_that_has() -> None:
    given().when(said(asked("c\ud800"))).then(recorded(MessageAppended, opens=["c\\ud800"]))


# --- abandon


def test_abandoning_records_which_call_is_given_up() -> None:
    case = given(said(asked("c1", "c2"))).when(abandoned(1, "c1"))
    case.then(recorded(CallAbandoned, call_event_id="e1", call_version=1, call_id="c1"))
    assert [call.call_id for call in case.session.state.awaited] == ["c2"]


@pytest.mark.parametrize(
    "history",
    [[said(asked("c1", awaiting=False))], [said(asked("c1")), said(answered("c1"))]],
    ids=["never awaited", "answered"],
)
def test_abandoning_a_call_that_does_not_await_is_refused(history: list[Command]) -> None:
    given(*history).when(abandoned(1, "c1")).then_refused(CallNotAwaitedError, "c1")


# --- compact


def test_a_pass_records_a_boundary_that_names_what_stays() -> None:
    history = said(Message.system("be kind")), said("one"), said("two")
    case = given(*history).when(
        compacted(pinned=[1], covered=[2], preserved=[3], strategy="window", trigger=len)
    )
    case.then(
        recorded(
            Compacted,
            event_id="e4",
            pinned=["e1"],
            summary=None,
            preserved=["e3"],
            covered_count=1,
            tokens_saved=7,
            strategy="window",
            trigger="len",
        )
    )
    assert case.session.state.view == ((1, 1), (3, 3))


def test_a_pass_records_its_summary_right_behind_the_boundary() -> None:
    case = given(said("one"), said("two")).when(compacted(covered=[1], preserved=[2], summary=["recap", "."]))
    case.then(
        recorded(Compacted, summary=["e4", "e5"], originator_version=3),
        recorded(MessageAppended, event_id="e4", synthetic=1, originator_version=4),
        recorded(MessageAppended, event_id="e5", synthetic=1, originator_version=5),
    )
    assert case.session.state.view == ((4, 5), (2, 2))


def test_all_events_of_a_pass_have_one_time() -> None:
    case = given(said("one"), said("two")).when(compacted(covered=[1], preserved=[2], summary=["recap"]))
    assert len({event.timestamp for event in case.session.recorded}) == 1


def test_what_is_said_behind_a_boundary_joins_its_view() -> None:
    history = said("one"), said("two"), compacted(covered=[1], preserved=[2], summary=["recap"])
    assert given(*history, said("three"), said("four")).session.state.view == ((4, 4), (2, 2), (5, 6))


def test_a_boundary_covers_a_message_that_a_range_would_span() -> None:
    history = said("one"), said("two"), said("three"), compacted(preserved=[1, 3], covered=[2])
    assert given(*history, said("four")).session.state.view == ((1, 1), (3, 5))


def test_a_message_that_is_named_twice_is_refused() -> None:
    given(said("one"), said("two")).when(compacted(pinned=[1], covered=[1], preserved=[2])).then_refused(
        InvalidBoundaryError, "once"
    )


def test_a_message_outside_the_view_is_refused() -> None:
    history = said("one"), said("two"), compacted(covered=[1], preserved=[2])
    given(*history).when(compacted(preserved=[1, 2])).then_refused(InvalidBoundaryError, "current view")


def test_covering_a_call_that_awaits_its_result_is_refused() -> None:
    history = said("buy"), said(asked("c1")), said("and?")
    given(*history).when(compacted(covered=[1, 2], preserved=[3])).then_refused(
        InvalidBoundaryError, "awaits"
    )


# --- metadata


def test_other_metadata_replace_the_former_ones() -> None:
    case = given(metadata={"a": 1}).when(metadata_updated({"b": 2}))
    case.then(recorded(MetadataUpdated, content='{"b":2}'))
    assert case.session.state.metadata_version == 1


def test_metadata_that_are_not_json_are_refused() -> None:
    given().when(metadata_updated({"a": object()})).then_refused(NotJsonError)


# --- expiry


def test_extending_records_the_new_expiry() -> None:
    case = given().when(extended(BEGIN + HOUR))
    case.then(recorded(ExpiryMoved, expires_at="2031-05-01T09:00:00+00:00"))
    assert case.session.state.expires_at == BEGIN + HOUR


def test_extending_without_an_end_records_that_it_never_expires() -> None:
    case = given(expires_at=BEGIN + HOUR).when(extended(None))
    case.then(recorded(ExpiryMoved, expires_at=None))
    assert not case.session.is_expired(BEGIN + 1000 * HOUR)


def test_extending_to_the_same_expiry_stays_quiet() -> None:
    given(expires_at=BEGIN + HOUR).when(extended(BEGIN + HOUR)).then()


def test_extending_to_a_time_without_an_offset_is_refused() -> None:
    naive = (BEGIN + HOUR).replace(tzinfo=None)
    given().when(extended(naive)).then_refused(NaiveTimeError)


def test_a_session_is_expired_from_its_expiry_on() -> None:
    session = given(expires_at=BEGIN + HOUR).session
    moments = [BEGIN + HOUR - timedelta(microseconds=1), BEGIN + HOUR]
    assert [session.is_expired(moment) for moment in moments] == [False, True]


# --- delete


def test_deleting_is_recorded_and_leaves_no_view() -> None:
    case = given(said("hi")).when(deleted).then(recorded(SessionDeleted))
    assert (case.session.is_deleted, case.session.state.view) == (True, ())


def test_deleting_again_stays_quiet() -> None:
    given(deleted).when(deleted).then()


def test_a_deleted_session_refuses_every_other_command() -> None:
    given(deleted).when(said("anybody?")).then_refused(SessionNotFoundError)


# --- the aggregate as a value


def test_the_version_cannot_be_set() -> None:
    session = given().session
    with pytest.raises(AttributeError, match="moves with an event"):
        session.version = 7


def test_a_deep_copy_is_changed_by_itself() -> None:
    session = given(said("hi")).session
    copy = deepcopy(session)
    said("more")(copy, BEGIN)
    assert (session.version, copy.version) == (1, 2)


def test_context_is_text_only() -> None:
    given().when(metadata_updated({}, context={"actor": 7})).then_refused(InvalidSettingError, "actor")
