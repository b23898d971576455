"""First calls that race for one session id."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.contracts.stores import STORES, Store

from turnlog.application.lifecycle import SessionDetails
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionIdUnavailableError

ROUNDS = 10


@pytest.fixture(params=["memory", "sqlite", "sqlite-plain-recorder", "postgres", "one-stream"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Stores with and without rows of ours."""
    return STORES[request.param](tmp_path)


def at_once(session_id: str, *scopes: SessionService) -> list[SessionDetails | None]:
    """What each scope finds or creates, None where the id was unavailable."""
    barrier = Barrier(len(scopes))

    def call(scope: SessionService) -> SessionDetails | None:
        barrier.wait(60)
        try:
            return scope.find_or_create(session_id)
        except SessionIdUnavailableError:
            return None

    with ThreadPoolExecutor(len(scopes)) as pool:
        return list(pool.map(call, scopes))


def test_two_first_calls_of_one_principal_find_one_session(store: Store) -> None:
    one, other = (store.service().scoped_to("ada") for _ in range(2))
    for number in range(ROUNDS):
        sid = f"s{number}"
        first, second = at_once(sid, one, other)
        assert first is not None
        assert first == second
    assert len(store.service().list_sessions()) == ROUNDS


def test_of_two_principals_that_race_for_an_id_one_gets_it(store: Store) -> None:
    ada, eve = (store.service().scoped_to(name) for name in ("ada", "eve"))
    for number in range(ROUNDS):
        sid = f"s{number}"
        got = at_once(sid, ada, eve)
        (winner,) = [details for details in got if details is not None]
        owner = ("ada", "eve")[got.index(winner)]
        assert winner.metadata[SessionAttributes.PRINCIPAL_NAME] == owner
        assert [scope.find(sid) is not None for scope in (ada, eve)] == [owner == "ada", owner == "eve"]
