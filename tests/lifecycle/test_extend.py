"""Another expiry: what is written, and what is saved with it."""

from __future__ import annotations

from eventsourcing.domain import Aggregate
from tests.support.conformance_stores import Store


def test_the_expiry_that_it_has_is_no_reason_to_write(store: Store) -> None:
    sessions = store.service()
    sessions.create("s")
    version = sessions.extend("s", None)
    assert sessions.extend("s", None) == version


def test_what_is_to_be_saved_with_the_expiry_that_it_has_is_saved(shared_store: Store) -> None:
    sessions, order = shared_store.service(), Aggregate()
    sessions.create("s")
    version = sessions.extend("s", None)
    assert sessions.extend("s", None, also=[order]) == version + 1
    assert sessions.app.repository.get(order.id) == order
    assert sessions.get_events("s") == ()


def test_so_is_what_a_function_gives(shared_store: Store) -> None:
    sessions, order = shared_store.service(), Aggregate()
    sessions.create("s")
    sessions.extend("s", None)
    sessions.extend("s", None, also=lambda: [order])
    assert sessions.app.repository.get(order.id) == order
