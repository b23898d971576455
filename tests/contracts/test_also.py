"""A host's aggregates in the transaction of a session's events: both or neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
from tests.contracts.passes import keep_turns
from tests.contracts.stores import STORES, Order, Store

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionReason
from turnlog.domain.errors import SessionIdUnavailableError, StorageError, VersionConflictError
from turnlog.domain.messages import Message

HI = Message.user("hi")


def _item(sessions: SessionService, order: Order) -> str:
    return cast("Order", sessions.app.repository.get(order.id)).item


def _order(sessions: SessionService) -> Order:
    order = Order("tea")
    sessions.app.save(order)
    return order


@pytest.fixture
def sessions(host_store: Store) -> SessionService:
    service = host_store.service()
    service.create("s")
    return service


WRITES: dict[str, Callable[[SessionService, Sequence[Order]], object]] = {
    "create": lambda sessions, also: sessions.create("t", also=also),
    "append_message": lambda sessions, also: sessions.append_message("s", HI, also=also),
    "append_event": lambda sessions, also: sessions.append_event("s", "ACME.NOTE", also=also),
    "append_events": lambda sessions, also: sessions.append_events("s", [HI, HI], also=also),
    "update_metadata": lambda sessions, also: sessions.update_metadata("s", {"a": 1}, also=also),
    "extend": lambda sessions, also: sessions.extend("s", None, also=also),
    "delete": lambda sessions, also: sessions.delete("s", erase=False, also=also),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_saves_the_hosts_aggregates(sessions: SessionService, write: str) -> None:
    order = Order("tea")
    WRITES[write](sessions, [order])
    assert _item(sessions, order) == "tea"


def test_metadata_that_the_session_has_already_save_them_too(sessions: SessionService) -> None:
    """Nothing says that it is a retry, so the host's aggregates may be new."""
    sessions.update_metadata("s", {"a": 1})
    order, other = Order("tea"), Order("milk")
    sessions.update_metadata("s", {"a": 1}, also=[order])
    sessions.update_metadata("s", {"a": 1}, also=lambda: [other])
    assert (_item(sessions, order), _item(sessions, other)) == ("tea", "milk")


def test_a_conflict_of_the_hosts_aggregate_stores_no_message(sessions: SessionService) -> None:
    order = _order(sessions)
    stale = cast("Order", sessions.app.repository.get(order.id))
    order.rename("coffee")
    sessions.app.save(order)
    stale.rename("milk")
    with pytest.raises(VersionConflictError):
        sessions.append_message("s", HI, also=[stale])
    assert (sessions.get_events("s"), _item(sessions, order)) == ((), "coffee")


def test_a_session_that_moved_on_keeps_the_hosts_events_out(
    host_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = host_store.service(), host_store.service()
    one.create("s")
    order = _order(one)
    order.rename("coffee")
    _race_the_next_save(one, lambda: other.append_message("s", Message.user("first")), monkeypatch)
    with pytest.raises(VersionConflictError):
        one.append_message("s", HI, also=[order])
    assert [event.text for event in one.get_events("s")] == ["first"]
    assert _item(one, order) == "tea"


def test_a_function_is_called_anew_after_a_lost_race(
    host_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = host_store.service(), host_store.service()
    one.create("s")
    order = _order(one)
    calls = 0

    def renamed() -> Sequence[Order]:
        nonlocal calls
        calls += 1
        loaded = cast("Order", one.app.repository.get(order.id))
        loaded.rename(f"coffee {calls}")
        return [loaded]

    _race_the_next_save(one, lambda: other.append_message("s", Message.user("first")), monkeypatch)
    one.append_message("s", HI, also=renamed)
    assert [event.text for event in one.get_events("s")] == ["first", "hi"]
    assert (_item(one, order), calls) == ("coffee 2", 2)


def test_a_repeat_saves_the_hosts_events_neither(sessions: SessionService) -> None:
    order = _order(sessions)
    sessions.append_message("s", HI, event_id="given")
    order.rename("coffee")
    assert sessions.append_message("s", HI, event_id="given", also=[order]).is_repeat
    assert _item(sessions, order) == "tea"


def test_an_id_that_is_taken_keeps_the_hosts_events_out(sessions: SessionService) -> None:
    order = _order(sessions)
    order.rename("coffee")
    with pytest.raises(SessionIdUnavailableError):
        sessions.create("s", also=[order])
    assert _item(sessions, order) == "tea"


def test_a_pass_saves_the_hosts_aggregates(sessions: SessionService) -> None:
    sessions.append_events("s", [Message.user(text) for text in "123"])
    order = Order("tea")
    assert keep_turns(sessions, "s", 1, also=[order]).reason is CompactionReason.COMPACTED
    assert _item(sessions, order) == "tea"


def test_a_store_of_single_streams_refuses_with_an_error_of_ours(tmp_path: Path) -> None:
    sessions = STORES["one-stream"](tmp_path).service()
    sessions.create("s")
    with pytest.raises(StorageError, match="one stream"):
        sessions.append_message("s", HI, also=[Order("tea")])
    assert sessions.version("s") == 0


def _race_the_next_save(
    sessions: SessionService, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let something happen right before the next save of this service, and only then."""
    save = sessions.app.save

    def raced(*aggregates: object) -> object:
        monkeypatch.undo()
        act()
        return save(*aggregates)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # passed on as it came

    monkeypatch.setattr(sessions.app, "save", raced)
