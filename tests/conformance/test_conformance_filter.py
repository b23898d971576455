"""Reading with a filter, building and merging filters, and the filter on what is stored."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from tests.support.conformance_cases import cases, check, checked_case, contents, outcome
from tests.support.events import EVENT_FIELDS, MESSAGE_FIELDS, Data, log_of, message_of, only

from turnlog.domain.errors import InvalidFilterError
from turnlog.domain.filters import EventFilter, MessageFilter

_ERRORS: dict[type[Exception], str] = {InvalidFilterError: "invalid_filter"}
_FIELDS = {
    "from": "since",
    "to": "until",
    "types": "roles",
    "exclude_synthetic": "exclude_synthetic",
    "exclude_archived": "exclude_archived",
    "keyword": "keyword",
    "keywords": "keywords",
    "match": "match",
    "branch": "branch",
    "last_n": "last_n",
    "page": "page",
    "page_size": "page_size",
}
"""Fields of a filter in the cases, and their names here; a pattern is made of two of them."""

_FLAGS = ("exclude_synthetic", "exclude_archived", "pattern_ignore_case")


@pytest.mark.parametrize("case", cases("filter"))
def test_conformance_filter(case: Data) -> None:
    match case["kind"]:
        case "query":
            _query(case)
        case "build":
            _build(case)
        case "merge":
            _merge(case)
        case "message_filter":
            _message_filter(case)
        case kind:
            pytest.fail(f"cases of the kind {kind} are not run by this test")


def _query(case: Data) -> None:
    checked_case(case, "kind", "events", "filter")
    given = case["events"]
    events = (contents("filter") or {})[given] if isinstance(given, str) else given
    log = log_of(only(event, EVENT_FIELDS) for event in events)
    _expect(case, "ids", lambda: [event.id for event in _event_filter(case["filter"]).apply(log)])


def _build(case: Data) -> None:
    checked_case(case, "kind", "filter")
    _expect(case, "filter", lambda: _fields_set(_event_filter(case["filter"])))


def _merge(case: Data) -> None:
    checked_case(case, "kind", "base", "other")
    _expect(
        case, "filter", lambda: _fields_set(_event_filter(case["base"]).merge(_event_filter(case["other"])))
    )


def _message_filter(case: Data) -> None:
    checked_case(case, "kind", "filter", "messages")
    messages = [only(message, (*MESSAGE_FIELDS, "keep")) for message in case.get("messages", ())]
    wanted = {"keep": [message["keep"] for message in messages]} if messages else {}
    _expect(
        {**case, "expect": {**case.get("expect", {}), **wanted}},
        "keep",
        lambda: _kept(_stored_filter(case["filter"]), messages),
    )


def _kept(criteria: MessageFilter, messages: list[Data]) -> list[bool]:
    return [criteria.keeps(message_of(message)) for message in messages]


def _expect(case: Data, name: str, act: Callable[[], object]) -> None:
    """Compare what is expected under this name with what `act` returns, or with the error that it ends in."""
    found, error = outcome(act, _ERRORS)
    expect = dict(case["expect"])
    if "filter" in expect:
        expect["filter"] = _comparable(expect["filter"])
    check(expect, {name: lambda: found}, error)


def _event_filter(data: Data) -> EventFilter:
    only(data, (*_FIELDS, "pattern", "pattern_ignore_case"))
    values = {_FIELDS[name]: _value(name, value) for name, value in data.items() if name in _FIELDS}
    if "pattern" in data:
        flags = re.IGNORECASE if data.get("pattern_ignore_case") else re.NOFLAG
        values["pattern"] = re.compile(data["pattern"], flags)
    return EventFilter(**values)


def _fields_set(built: EventFilter) -> dict[str, object]:
    """Every field of the filter that is set, by its name in the cases."""
    found = {name: getattr(built, here) for name, here in _FIELDS.items()}
    if built.pattern is not None:
        found["pattern"] = built.pattern.pattern
        found["pattern_ignore_case"] = bool(built.pattern.flags & re.IGNORECASE)
    return {name: value for name, value in found.items() if value is not None and value is not False}


def _comparable(data: Data) -> dict[str, object]:
    """The expected fields as a filter holds them; a flag that is off is not set."""
    only(data, (*_FIELDS, "pattern", "pattern_ignore_case"))
    return {name: _value(name, value) for name, value in data.items() if name not in _FLAGS or value}


def _value(name: str, value: Any) -> Any:
    match name:
        case "from" | "to":
            return datetime.fromisoformat(value)
        case "types":
            return frozenset(value)
        case "keywords":
            return tuple(value)
        case _:
            return value


def _stored_filter(data: Data | None) -> Any:
    if data is None:
        return None
    ((kind, value),) = only(data, ("all", "skip_empty", "types", "contains", "and", "or", "not")).items()
    match kind:
        case "all":
            return MessageFilter.everything()
        case "skip_empty":
            return MessageFilter.skip_empty()
        case "types":
            return MessageFilter.roles(*value)
        case "contains":
            return MessageFilter.contains(value)
        case "and":
            return MessageFilter.all_of([_stored_filter(one) for one in value])
        case "or":
            return MessageFilter.any_of([_stored_filter(one) for one in value])
        case _:
            return ~_stored_filter(value)
