"""To an audit in a scope the sessions of others do not exist; and the audit for asyncio is the same."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tests.audit.logs import say_turns

from turnlog.application.async_service import AsyncSessionService
from turnlog.application.audit import AsyncSessionAudit, SessionAudit
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionNotFoundError

OWNER, STRANGER, SID = "ada", "eve", "private"

CALLS: dict[str, Callable[[Any], Any]] = {
    "carried": lambda a: a.carried(SID, "u0"),
    "diff": lambda a: a.diff(SID, 1, 2),
    "explain": lambda a: a.explain(SID, "u0"),
    "lineage": lambda a: a.lineage(SID, "u0"),
    "lost": lambda a: a.lost(SID),
    "passes": lambda a: a.passes(SID),
    "record_prompt": lambda a: a.record_prompt(SID, body={"model": "m"}),
    "record_reply": lambda a: a.record_reply(SID, "call"),
    "timeline": lambda a: a.timeline(SID),
    "stored": lambda a: a.stored(SID),
    "told": lambda a: a.told(SID, "call"),
    "verify": lambda a: a.verify(SID),
    "view_at": lambda a: a.view_at(SID),
}
OF_MANY = {"export_heads", "restore"}
OF_THE_SERVICE = {"app", "capabilities", "close", "namespace", "principal", "sync"}


@pytest.fixture
def owned(app: Sessions) -> SessionService:
    """A service with a session of the owner that holds a recorded call."""
    sessions = SessionService(app)
    sessions.create(SID, metadata={SessionAttributes.PRINCIPAL_NAME: OWNER})
    say_turns(sessions, SID, 0, 1)
    SessionAudit(sessions).record_prompt(SID, body={"model": "m"}, call_id="call")
    return sessions


def _names(of: type[object]) -> set[str]:
    return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


def test_every_public_method_is_asked() -> None:
    assert _names(SessionAudit) == CALLS.keys() | OF_MANY | OF_THE_SERVICE - {"sync"}


def test_the_audit_for_asyncio_has_the_same_methods() -> None:
    assert _names(AsyncSessionAudit) == CALLS.keys() | OF_MANY


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_foreign_session_does_not_exist(owned: SessionService, name: str) -> None:
    with pytest.raises(SessionNotFoundError):
        CALLS[name](SessionAudit(owned.scoped_to(STRANGER)))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_foreign_session_does_not_exist_for_asyncio(owned: SessionService, name: str) -> None:
    scoped = AsyncSessionService(owned.app).scoped_to(STRANGER)

    async def ask() -> None:
        await CALLS[name](AsyncSessionAudit(scoped))

    with pytest.raises(SessionNotFoundError):
        asyncio.run(ask())


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"lineage"}))
def test_the_owner_is_answered(owned: SessionService, name: str) -> None:
    CALLS[name](SessionAudit(owned.scoped_to(OWNER)))


def test_heads_are_those_of_the_scope(owned: SessionService) -> None:
    assert len(SessionAudit(owned.scoped_to(OWNER)).export_heads().heads) == 1
    assert SessionAudit(owned.scoped_to(STRANGER)).export_heads().heads == ()


def test_closing_an_audit_closes_nothing(owned: SessionService) -> None:
    SessionAudit(owned).close()
    assert owned.version(SID) == 3
