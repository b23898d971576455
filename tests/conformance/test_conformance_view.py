"""The projection of a log, and the view of a session that holds it."""

from __future__ import annotations

import pytest
from tests.support.conformance_cases import cases, check, checked_case, outcome
from tests.support.conformance_passes import StoredConversation
from tests.support.conformance_stores import Store
from tests.support.events import Data, is_of_the_service, log_of

from turnlog.domain.errors import BrokenBoundaryError
from turnlog.domain.view import project

_ERRORS: dict[type[Exception], str] = {BrokenBoundaryError: "broken_boundary"}


@pytest.mark.parametrize("case", cases("view"))
def test_conformance_view_of_a_log(case: Data) -> None:
    checked_case(case, "log")
    ids, error = outcome(lambda: list(project(log_of(case["log"])).ids), _ERRORS)
    check(case["expect"], {"view": lambda: ids}, error)


def _can_be_stored(case: Data) -> bool:
    return is_of_the_service(log_of(case["log"]))


@pytest.mark.parametrize("case", cases("view", keep=_can_be_stored))
def test_conformance_view_of_a_session(case: Data, store: Store) -> None:
    checked_case(case, "log")
    conversation = StoredConversation(store.service())
    conversation.append(case["log"])
    check(case["expect"], {"view": lambda: [event.id for event in conversation.view]})
