"""Searching one conversation and searching all conversations of a user, on every store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from tests.support.conformance_cases import cases, checked_case
from tests.support.conformance_stores import Store
from tests.support.events import EVENT_FIELDS, Data, log_of, only

from turnlog.application.recall_tools import (
    NO_RESULTS,
    ConversationSearch,
    CrossSessionSearch,
    RecallResult,
)
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import CompactionReason, CompactionRequest, CompactionResult
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.query import InvalidArgumentError

_ERRORS = {InvalidSettingError: "invalid_setting", InvalidArgumentError: "invalid_argument"}
_EXPECT = (
    "ids",
    "message",
    "error",
    "error_mentions",
    "fields",
    "items",
    "versions_unchanged",
)


class _Keep:
    """A strategy that keeps the named events and covers all others."""

    def __init__(self, kept: Sequence[str]) -> None:
        self._kept = frozenset(kept)

    def compact(self, request: CompactionRequest) -> CompactionResult:
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=tuple(event for event in request.events if event.id not in self._kept),
            preserved_events=tuple(event for event in request.events if event.id in self._kept),
        )


@pytest.mark.parametrize("case", cases("recall"))
def test_conformance_recall(case: Data, store: Store) -> None:
    checked_case(case, "search", "sessions", "setup", "args")
    expect = only(case["expect"], _EXPECT)
    service = store.service()
    logs = {data["id"]: _stored(service, data) for data in case["sessions"]}
    versions = {name: service.version(name) for name in logs}
    if "error" in expect:
        with pytest.raises(tuple(_ERRORS)) as raised:
            _tool(service, case).search(case["args"])
        assert _ERRORS[raised.type] == expect["error"]
        assert expect.get("error_mentions", "") in str(raised.value)
        return
    tool = _tool(service, case)
    found = tool.search(case["args"])
    assert expect.get("message") == (NO_RESULTS if tool(case["args"]) == NO_RESULTS else None)
    assert [_key(result) for result in found] == _expected(case, logs)
    for result in found:
        assert tuple(result.to_dict()) == tuple(expect.get("fields", result.to_dict()))
    if "items" in expect:
        assert [result.to_dict() for result in found] == expect["items"]
    if expect.get("versions_unchanged"):
        assert {name: service.version(name) for name in logs} == versions


def _tool(service: SessionService, case: Data) -> ConversationSearch | CrossSessionSearch:
    setup = dict(only(case["setup"], ("session", "user", "page_size")))
    size = {"page_size": setup["page_size"]} if "page_size" in setup else {}
    if case["search"] == "conversation_search":
        return ConversationSearch(service, setup.get("session"), **size)
    assert case["search"] == "cross_session_search"
    return CrossSessionSearch(service, setup["user"], **size)


def _stored(service: SessionService, data: Data) -> tuple[SessionEvent, ...]:
    """Store the session; its times are claimed, as those of an import, and what left the view is covered."""
    only(data, ("id", "user", "events"))
    sid = data["id"]
    service.create(sid, metadata={SessionAttributes.PRINCIPAL_NAME: data["user"]})
    log = log_of(only(event, EVENT_FIELDS) for event in data["events"])
    for event in log:
        if event.boundary:
            service.compact(sid, None, _Keep(event.boundary.named))
        else:
            service.append_events(sid, [replace(NewEvent.of(event), occurred_at=event.timestamp)])
    if any(event.archived for event in log):
        service.compact(sid, None, _Keep([event.id for event in log if not event.archived]))
    archived = {event.id for event in service.get_events(sid) if event.archived}
    assert archived >= {event.id for event in log if event.archived}
    return log


def _expected(case: Data, logs: Mapping[str, Sequence[SessionEvent]]) -> list[tuple[Any, ...]]:
    by_id = {event.id: event for log in logs.values() for event in log}
    events = [by_id[name] for name in case["expect"].get("ids", ())]
    return [(event.text, event.timestamp, event.role) for event in events]


def _key(result: RecallResult) -> tuple[str, datetime, str]:
    return result.text, result.timestamp, result.type
