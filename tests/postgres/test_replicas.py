"""A service on a server that may only be read, as a replica of the one that is written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from tests.postgres.conftest import service_on

from turnlog.application import SessionService
from turnlog.domain import EventQuery, Message, StorageError


@pytest.fixture
def replica(
    sessions: SessionService, env: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SessionService]:
    """What reads, beside the service that writes."""
    sessions.create("order")
    sessions.append_message("order", Message.user("Where is my parcel?"))
    monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    with service_on(env, CREATE_TABLE="no") as service:
        yield service


def test_a_replica_shows_lists_and_searches(replica: SessionService) -> None:
    assert [message.text for message in replica.view("order").messages] == ["Where is my parcel?"]
    assert [row.session_id for row in replica.list_sessions()] == ["order"]
    assert len(replica.search_events("order", EventQuery(keywords="parcel"))) == 1


def test_a_version_tells_whether_a_replica_has_a_write(
    sessions: SessionService, replica: SessionService
) -> None:
    assert replica.version("order") == 1
    stored = sessions.append_message("order", Message.user("It is urgent."))
    assert replica.version("order") == stored.version
    assert len(replica.view("order").messages) == 2


def test_a_replica_refuses_to_write(replica: SessionService) -> None:
    with pytest.raises(StorageError):
        replica.append_message("order", Message.user("Hello?"))
    assert replica.version("order") == 1
