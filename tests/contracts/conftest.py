"""The store that a contract is tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.stores import HOST_STORES, STORES, Store

from turnlog.application.service import SessionService


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each of the stores."""
    return STORES[request.param](tmp_path)


@pytest.fixture(params=HOST_STORES)
def host_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each of the stores that save several streams at once."""
    return STORES[request.param](tmp_path)


@pytest.fixture
def sessions(store: Store) -> Iterator[SessionService]:
    """A service on the store."""
    with store.service() as service:
        yield service
        service.app.close()
