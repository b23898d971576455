"""Sessions over several logs, by the code of the page about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.postgres import connect, fresh_schema

from turnlog.application import SessionService
from turnlog.domain import EventQuery, Message, SessionIdUnavailableError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "shard.md"


@pytest.fixture
def page(env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What the page defines, on a store of its own that holds the ten sessions of the page."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    defined: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(blocks[:2]), defined)  # noqa: S102 - the page of this repository
    yield SimpleNamespace(**defined)
    exec(blocks[2], defined)  # noqa: S102


def _services(page: Any) -> list[SessionService]:
    return cast("list[SessionService]", page.shards)


def test_a_session_is_in_one_shard_and_does_not_exist_in_the_others(page: Any) -> None:
    for number in range(10):
        name = f"order-{number}"
        home: SessionService = page.of(name)
        assert len(home.get_messages(name)) == 1
        for other in _services(page):
            if other is not home:
                assert other.find(name) is None


def test_the_sessions_are_spread_over_the_shards(page: Any) -> None:
    counts = [len(service.list_sessions()) for service in _services(page)]
    assert sum(counts) == 10
    assert sum(count > 0 for count in counts) > 1


def test_each_shard_has_a_notification_log_of_its_own(page: Any) -> None:
    for service in _services(page):
        page_of_log = service.app.recorder.select_notifications(None, 100)
        assert len(page_of_log) == 2 * len(service.list_sessions())


def test_an_id_is_taken_in_all_shards_by_one_session(page: Any) -> None:
    with pytest.raises(SessionIdUnavailableError):
        page.of("order-3").create("order-3")


def test_pages_over_all_shards_show_each_session_once_newest_first(page: Any) -> None:
    seen: dict[int, int] = {}
    listed: list[str] = []
    while rows := page.newest(3, seen):
        listed += [row.session_id for row in rows]
    assert listed == [f"order-{number}" for number in reversed(range(10))]


def test_a_search_over_all_shards_is_in_the_order_in_which_it_was_said(page: Any) -> None:
    page.of("order-0").append_message("order-0", Message.user("The parcel came."))
    found = [event.session_id for event in page.search_all(EventQuery(keywords="parcel"))]
    assert found == [*(f"order-{number}" for number in range(10)), "order-0"]


def test_a_setting_with_the_name_of_a_shard_is_that_shards_alone(
    page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = fresh_schema()
    monkeypatch.setenv("SESSIONS1_POSTGRES_SCHEMA", elsewhere)
    for number, expected in ((0, _services(page)[0].list_sessions()), (1, ())):
        with page.shard(number) as service:
            assert list(service.list_sessions()) == list(expected)
    with connect() as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (elsewhere,))
        assert {name.split("_")[0] for (name,) in rows.fetchall()} == {"sessions1"}
