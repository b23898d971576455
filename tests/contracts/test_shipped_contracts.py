"""The contracts that users get for stores of their own, on ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.postgres import PostgresApplicationRecorder
from eventsourcing.sqlite import SQLiteApplicationRecorder
from eventsourcing.utils import Environment
from tests.contracts.stores import STORES, Store

from turnlog.application.projections import MemoryViewStore, ViewProjection, ViewStore
from turnlog.application.service import SessionService
from turnlog.infrastructure.postgres import PostgresViewStore
from turnlog.infrastructure.sqlite import SqliteViewStore
from turnlog.infrastructure.testing import (
    DirectoryContract,
    LogAndViewContract,
    MaterialisedViewContract,
    RecallContract,
)


class OnOurStores:
    """Each of the stores whose kind is one that users choose."""

    opened: list[SessionService]
    store: Store

    @pytest.fixture(
        autouse=True,
        params=["memory", "sqlite", "sqlite-plain-recorder", "postgres", "postgres-plain-recorder"],
    )
    def on_a_fresh_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        """An empty store, closed behind the test."""
        self.store, self.opened = STORES[request.param](tmp_path), []
        yield
        for service in self.opened:
            service.app.close()

    def service(self) -> SessionService:
        """A service on the store."""
        self.opened.append(self.store.service())
        return self.opened[-1]


class TestLogAndView(OnOurStores, LogAndViewContract):
    """Log and view."""


class TestRecall(OnOurStores, RecallContract):
    """Recall."""

    def test_a_long_message_is_taken_and_found(self) -> None:
        """Where the recorder takes it: docs/howto/postgres.md says where it does not."""
        recorder = self.service().app.recorder
        if type(recorder) is PostgresApplicationRecorder:
            pytest.skip("the framework's PostgreSQL recorder never returns from an append of this size")
        super().test_a_long_message_is_taken_and_found()


class TestDirectory(OnOurStores, DirectoryContract):
    """The directory."""


class TestMaterialisedView(OnOurStores, MaterialisedViewContract):
    """The materialised view, beside the log that it follows."""

    factories: list[InfrastructureFactory[ViewStore]]

    @pytest.fixture(autouse=True)
    def closed_behind_the_test(self) -> Iterator[None]:
        """Each store is one on connections of its own, as a runner makes it."""
        self.factories = []
        self.in_memory = MemoryViewStore()
        yield
        for factory in self.factories:
            factory.close()

    def view_store(self) -> ViewStore:
        """A store of the kind that the log's store is."""
        app = self.service().app
        if isinstance(app.recorder, PostgresApplicationRecorder):
            kind: type[ViewStore] = PostgresViewStore
        elif isinstance(app.recorder, SQLiteApplicationRecorder):
            kind = SqliteViewStore
        else:
            return self.in_memory
        env = Environment(ViewProjection.name, dict(app.env))
        self.factories.append(InfrastructureFactory[ViewStore].construct(env))
        return self.factories[-1].tracking_recorder(kind)
