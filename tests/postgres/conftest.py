from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from eventsourcing.postgres import PostgresDatastore
from tests.support.conformance_stores import NoTokens
from tests.support.cutting_proxy import CuttingProxy
from tests.support.postgres import postgres_env

from turnlog.application.service import SessionService
from turnlog.infrastructure.postgres import PostgresSessionRecorder


def service_on(env: Mapping[str, str], **settings: str) -> SessionService:
    """A service with an application of its own."""
    return SessionService(env={**env, **settings}, token_estimator=NoTokens())


def datastore_of(sessions: SessionService) -> PostgresDatastore:
    """The connections of the service."""
    recorder = sessions.app.recorder
    assert isinstance(recorder, PostgresSessionRecorder)
    return recorder.datastore


@pytest.fixture
def env() -> Mapping[str, str]:
    """The settings of a fresh store."""
    return postgres_env()


@pytest.fixture
def sessions(env: Mapping[str, str]) -> Iterator[SessionService]:
    """A service on the store."""
    with service_on(env) as service:
        yield service


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    """A proxy in front of the server."""
    with CuttingProxy() as running:
        yield running
