"""To a scope the sessions of others do not exist, whatever is asked, in every public method there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.branches.random_logs import Summarizer
from tests.contracts.stores import STORES, Store
from tests.scopes.calls import (
    ABOUT_THE_SERVICE,
    CODE_WORD,
    MAKING,
    OF_OWNER,
    OF_THE_WHOLE_STORE,
    ON_A_SESSION,
    OWNER,
    SID,
    STRANGER,
    Call,
    Service,
    answer,
    fill,
    position,
    public_names,
)

from turnlog.application.async_service import AsyncSessionService
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import InvalidSettingError, SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

KINDS: dict[str, Callable[[SessionService], Service]] = {
    "sync": lambda sessions: sessions,
    "async": lambda sessions: AsyncSessionService(sessions.app),
}


def _calls(*tables: str) -> list[object]:
    chosen = {"on a session": ON_A_SESSION, "making": MAKING, "whole store": OF_THE_WHOLE_STORE}
    return [
        pytest.param(call, id=f"{name}-{number}")
        for table in tables
        for name, calls in sorted(chosen[table].items())
        for number, call in enumerate(calls)
    ]


@pytest.fixture(
    params=[("memory", "sync"), ("memory", "async"), ("sqlite", "sync"), ("postgres", "sync")], ids=" ".join
)
def setting(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A store, and the service as it is or the one for asyncio."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture
def maker(setting: tuple[str, str]) -> Callable[[Path], Store]:
    """How to make a store of this setting."""
    return STORES[setting[0]]


@pytest.fixture
def sessions(maker: Callable[[Path], Store], tmp_path: Path) -> Iterator[SessionService]:
    """A store that holds a session of the owner."""
    service = maker(tmp_path).service()
    fill(service)
    yield service
    service.app.close()


@pytest.fixture
def nobodys(maker: Callable[[Path], Store], tmp_path: Path) -> Iterator[SessionService]:
    """A store that holds nothing."""
    folder = tmp_path / "empty"
    folder.mkdir()
    service = maker(folder).service()
    yield service
    service.app.close()


@pytest.fixture
def kind(setting: tuple[str, str]) -> Callable[[SessionService], Service]:
    """The service of this setting on the application of another."""
    return KINDS[setting[1]]


@pytest.mark.parametrize("service", [SessionService, AsyncSessionService])
def test_every_public_method_has_its_case_here(service: type[Service]) -> None:
    known = ON_A_SESSION.keys() | MAKING.keys() | OF_THE_WHOLE_STORE.keys() | ABOUT_THE_SERVICE
    assert public_names(service) == known


@pytest.mark.parametrize("call", _calls("on a session"))
def test_a_stranger_is_answered_as_if_the_store_were_empty(
    sessions: SessionService,
    nobodys: SessionService,
    kind: Callable[[SessionService], Service],
    call: Call,
) -> None:
    told = answer(kind(sessions).scoped_to(STRANGER), call)
    assert told == answer(kind(nobodys).scoped_to(STRANGER), call)


@pytest.mark.parametrize("call", _calls("on a session", "making", "whole store"))
def test_a_stranger_writes_nothing(
    sessions: SessionService, kind: Callable[[SessionService], Service], call: Call
) -> None:
    before = position(sessions), sessions.get_events(SID), sessions.find(SID)
    answer(kind(sessions).scoped_to(STRANGER), call)
    assert (position(sessions), sessions.get_events(SID), sessions.find(SID)) == before


@pytest.mark.parametrize("call", _calls("on a session"))
def test_the_owner_is_answered(
    sessions: SessionService,
    nobodys: SessionService,
    kind: Callable[[SessionService], Service],
    call: Call,
) -> None:
    told = answer(kind(sessions).scoped_to(OWNER), call)
    assert told != answer(kind(nobodys).scoped_to(OWNER), call)


@pytest.mark.parametrize("call", _calls("making"))
def test_an_id_of_somebody_else_is_unavailable_like_one_that_was_deleted(
    sessions: SessionService, kind: Callable[[SessionService], Service], call: Call
) -> None:
    taken = answer(kind(sessions).scoped_to(STRANGER), call)
    sessions.delete(SID, erase=False)
    assert taken == answer(kind(sessions).scoped_to(STRANGER), call)
    assert taken == (SessionIdUnavailableError, str(SessionIdUnavailableError(SID)))


@pytest.mark.parametrize("call", _calls("whole store"))
def test_a_scope_refuses_what_is_about_the_whole_store(
    sessions: SessionService, kind: Callable[[SessionService], Service], call: Call
) -> None:
    told = answer(kind(sessions).scoped_to(STRANGER), call)
    assert isinstance(told, tuple)
    assert told[0] is InvalidSettingError


def test_closing_a_scope_leaves_the_service_open(nobodys: SessionService) -> None:
    with SessionService() as own:
        own.scoped_to(STRANGER).close()
        own.create(SID)
    nobodys.scoped_to(STRANGER).close()
    nobodys.create(SID)


def test_what_a_scope_creates_is_its_own(sessions: SessionService) -> None:
    sessions.scoped_to(STRANGER).create("new")
    assert sessions.scoped_to(OWNER).find("new") is None


def test_metadata_that_are_replaced_in_a_scope_keep_their_owner(sessions: SessionService) -> None:
    ada = sessions.scoped_to(OWNER)
    ada.update_metadata(SID, {"title": "other"})
    assert [row.metadata for row in ada.list_sessions()] == [{**OF_OWNER, "title": "other"}]


@pytest.mark.parametrize("act", ["create", "update"])
def test_a_scope_gives_no_session_to_somebody_else(sessions: SessionService, act: str) -> None:
    eve = sessions.scoped_to(STRANGER)
    eve.create("new")
    with pytest.raises(InvalidSettingError):
        eve.create("other", metadata=OF_OWNER) if act == "create" else eve.update_metadata("new", OF_OWNER)


def test_a_session_without_an_owner_is_in_no_scope(sessions: SessionService) -> None:
    sessions.create("nobody's")
    assert sessions.scoped_to(STRANGER).find("nobody's") is None


def test_a_session_that_changed_hands_is_gone_for_who_had_it(sessions: SessionService) -> None:
    ada, eve = sessions.scoped_to(OWNER), sessions.scoped_to(STRANGER)
    assert len(ada.view(SID).events) == 3
    sessions.update_metadata(SID, {SessionAttributes.PRINCIPAL_NAME: STRANGER})
    with pytest.raises(SessionNotFoundError):
        ada.view(SID)
    assert len(eve.view(SID).events) == 3


def test_a_pass_of_who_had_the_session_is_not_recorded(sessions: SessionService) -> None:
    sessions.append_message(SID, Message.user("three"))
    sessions.abandon(SID, "k1", "c1")
    given_away: list[int] = []

    def give_away() -> None:
        of_stranger = {SessionAttributes.PRINCIPAL_NAME: STRANGER}
        given_away.append(sessions.update_metadata(SID, of_stranger))

    window = WindowCompactionStrategy(CompactionWindow.last_turns(1), Summarizer(give_away))
    with pytest.raises(SessionNotFoundError):
        sessions.scoped_to(OWNER).compact(SID, None, window)
    assert [sessions.version(SID)] == given_away


def test_a_repeat_of_a_foreign_event_tells_nothing_of_it(sessions: SessionService) -> None:
    eve = sessions.scoped_to(STRANGER)
    eve.create("mine")
    stored = eve.append_message("mine", Message.user(CODE_WORD), event_id="u1")
    assert not stored.is_repeat


@pytest.mark.parametrize("principal", ["", " ", "\n"])
def test_a_scope_needs_a_principal(sessions: SessionService, principal: str) -> None:
    with pytest.raises(InvalidSettingError):
        sessions.scoped_to(principal)
