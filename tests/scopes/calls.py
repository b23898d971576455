"""Every public operation of the session service, called on one session."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

from turnlog.application.async_service import AsyncSessionService
from turnlog.application.service import SessionService
from turnlog.application.turns import CallReference, TurnMark, TurnStep
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import CompactionRequest
from turnlog.domain.errors import TurnlogError
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import CompactionBoundary, NewEvent
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.plan import CompactionPlan
from turnlog.domain.query import EventQuery
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "private"
CODE_WORD = "zinnia"
OWNER, STRANGER = "ada", "eve"
OF_OWNER = {SessionAttributes.PRINCIPAL_NAME: OWNER}

Service: TypeAlias = SessionService | AsyncSessionService
Call: TypeAlias = Callable[[Any], object]
"""A call of a `SessionService` or of an `AsyncSessionService`, which have the same methods."""

_AGES_AHEAD = datetime(9000, 1, 1, tzinfo=UTC)
_NEWEST_TURN = WindowCompactionStrategy(CompactionWindow.last_turns(1))
_PLAN = CompactionPlan(frozenset(("u1",)))


def _never(_: CompactionRequest) -> bool:
    return False


ON_A_SESSION: Mapping[str, Sequence[Call]] = {
    "abandon": [lambda s: s.abandon(SID, "k1", "c1")],
    "append_event": [
        lambda s: s.append_event(SID, "ACME.AUDIT", {"ok": True}),
        lambda s: s.append_event(SID, NewEvent(message=Message.user("hi"), id="u1")),
    ],
    "append_events": [
        lambda s: s.append_events(SID, [Message.user("hi"), Message.assistant("hello")]),
        lambda s: s.append_events(SID, [Message.user("hi")], expected_version=3),
        lambda s: s.append_events(SID, [Message.user("hi")], expected_version=1),
        lambda s: s.append_events(SID, []),
    ],
    "append_message": [
        lambda s: s.append_message(SID, Message.user("hi")),
        lambda s: s.append_message(SID, Message.user(CODE_WORD), event_id="u1"),
    ],
    "open_pass": [lambda s: s.open_pass(SID, None, _NEWEST_TURN)],
    "apply_plan": [
        lambda s: s.apply_plan(SID, _PLAN),
        lambda s: s.apply_plan(SID, _PLAN, expected_version=1),
        lambda s: s.apply_plan(SID, CompactionPlan()),
    ],
    "awaited_calls": [lambda s: s.awaited_calls(SID)],
    "awaits": [lambda s: s.awaits(SID, CallReference("k1", "c1"))],
    "compact": [
        lambda s: s.compact(SID, None, _NEWEST_TURN),
        lambda s: s.compact(SID, _never, _NEWEST_TURN),
        lambda s: s.compact(SID, None, _NEWEST_TURN, branch="a"),
    ],
    "delete": [lambda s: s.delete(SID), lambda s: s.delete(SID, erase=False)],
    "delete_expired": [lambda s: s.delete_expired(_AGES_AHEAD)],
    "events_by_id": [lambda s: s.events_by_id(SID, ["u1", "u9"])],
    "extend": [lambda s: s.extend(SID, None), lambda s: s.extend(SID, by=timedelta(days=1))],
    "find": [lambda s: s.find(SID)],
    "find_by_metadata": [
        lambda s: s.find_by_metadata({}),
        lambda s: s.find_by_metadata(OF_OWNER),
        lambda s: s.find_by_metadata({"title": CODE_WORD}),
    ],
    "get_event": [lambda s: s.get_event(SID, "u1")],
    "get_events": [
        lambda s: s.get_events(SID),
        lambda s: s.get_events(SID, EventFilter(keyword=CODE_WORD)),
        lambda s: s.get_events(SID, EventFilter(last_n=1)),
    ],
    "get_messages": [lambda s: s.get_messages(SID)],
    "holds": [lambda s: s.holds(SID)],
    "hold": [lambda s: s.hold(SID, "case 7", by="eve")],
    "iter_events": [lambda s: s.iter_events(SID)],
    "list_sessions": [lambda s: s.list_sessions(), lambda s: s.list_sessions(before=2**40)],
    "record_turn": [
        lambda s: s.record_turn(SID, [Message.user("hi")], TurnMark("t"), TurnStep.BEGIN),
        lambda s: s.record_turn(SID, [Message.user("hi")], TurnMark("t"), expected_version=1),
        lambda s: s.record_turn(SID, [], TurnMark("t"), answers=CallReference("k1", "c1")),
        lambda s: s.record_turn(SID, [], TurnMark("t"), TurnStep.END),
    ],
    "redact": [
        lambda s: s.redact(SID, "u1", reason="asked", by="eve"),
        lambda s: s.redact(SID, 1, reason="asked", by="eve"),
        lambda s: s.redact(SID, "u9", reason="asked", by="eve"),
    ],
    "rest_of_turn": [lambda s: s.rest_of_turn(SID, "u1"), lambda s: s.rest_of_turn(SID, "u9")],
    "release": [lambda s: s.release(SID, by="eve"), lambda s: s.release(SID, 3, by="eve")],
    "restore_boundary": [
        lambda s: s.restore_boundary(SID, "c1", CompactionBoundary(preserved=("u2",))),
        lambda s: s.restore_boundary(SID, "c1", CompactionBoundary(preserved=("u9",))),
    ],
    "search_all": [
        lambda s: s.search_all(EventQuery(keywords=CODE_WORD)),
        lambda s: s.search_all(EventQuery(), where=OF_OWNER),
        lambda s: s.search_all(EventQuery(), where={"title": CODE_WORD}),
    ],
    "search_events": [
        lambda s: s.search_events(SID, EventQuery(keywords=CODE_WORD)),
        lambda s: s.search_events(SID, EventQuery()),
    ],
    "sessions_with_prefix": [lambda s: s.sessions_with_prefix("p"), lambda s: s.sessions_with_prefix("")],
    "update_metadata": [
        lambda s: s.update_metadata(SID, {}),
        lambda s: s.update_metadata(SID, {"title": "mine"}),
    ],
    "usage": [lambda s: s.usage(SID)],
    "version": [lambda s: s.version(SID)],
    "view_for_turn": [lambda s: s.view_for_turn(SID, branch="a", turn_id="t")],
    "view": [
        lambda s: s.view(SID),
        lambda s: s.view(SID, at_version=1),
        lambda s: s.view(SID, at_version=99),
        lambda s: s.view(SID, at_time=_AGES_AHEAD),
    ],
}
"""What is asked about a session, or about all there are."""

MAKING: Mapping[str, Sequence[Call]] = {
    "create": [lambda s: s.create(SID), lambda s: s.create(SID, metadata={"title": "mine"})],
    "find_or_create": [lambda s: s.find_or_create(SID)],
}
"""What makes a session: the id of somebody else's is unavailable."""

OF_THE_WHOLE_STORE: Mapping[str, Sequence[Call]] = {
    "backup": [lambda s: s.backup("copy.db")],
    "erasures": [lambda s: s.erasures(datetime(2020, 1, 1, tzinfo=UTC))],
    "sweep": [lambda s: s.sweep(), lambda s: s.sweep(None)],
    "scoped_to": [lambda s: s.scoped_to(OWNER)],
}
"""What a scope refuses."""

ABOUT_THE_SERVICE = frozenset(
    ("app", "capabilities", "close", "close_pass", "fail_pass", "count_tokens", "namespace", "principal")
)
"""What is no question about sessions."""


def public_names(service: type[Service]) -> set[str]:
    """The names of all that a caller can use of a service."""
    return {name for name, _ in inspect.getmembers(service) if not name.startswith("_")}


def answer(service: Service, call: Call) -> object:
    """What the call answers, or the type and the text of the error that it raises."""
    try:
        return _waited_for(call(service))
    except TurnlogError as error:
        return type(error), str(error)


def _waited_for(result: object) -> object:
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    if isinstance(result, AsyncIterator):
        return asyncio.run(_all_of(cast("AsyncIterator[object]", result)))
    return list(cast("Iterator[object]", result)) if isinstance(result, Iterator) else result


async def _all_of(events: AsyncIterator[object]) -> list[object]:
    return [event async for event in events]


def fill(sessions: SessionService) -> None:
    """Make the session of the owner: two turns, an awaited call, a title."""
    sessions.create(SID, metadata={**OF_OWNER, "title": CODE_WORD})
    sessions.append_message(SID, Message.user(f"The word is {CODE_WORD}."), event_id="u1")
    sessions.append_message(SID, Message.user("two"), event_id="u2")
    asks = Message.assistant([ToolCallPart(id="c1", name="f", awaiting=True)])
    sessions.append_message(SID, asks, event_id="k1")


def position(sessions: SessionService) -> int | None:
    """How far the store's log of everything goes."""
    return sessions.app.recorder.max_notification_id()
