"""The one-line rendering of an event."""

from __future__ import annotations

import pytest
from tests.support.conformance_cases import cases, check, checked_case
from tests.support.events import EVENT_FIELDS, Data, event_of, only

from turnlog.domain.rendering import event_text


@pytest.mark.parametrize("case", cases("text"))
def test_conformance_text_of_an_event(case: Data) -> None:
    event = only(checked_case(case, "event")["event"], EVENT_FIELDS)
    check(case["expect"], {"text": lambda: event_text(event_of(event))})
