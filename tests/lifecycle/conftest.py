from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.conformance_stores import OTHERS, STORES, Store, open_store


@pytest.fixture(params=sorted({**STORES, **OTHERS}))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store of each kind."""
    name: Any = request.param
    with open_store(name, tmp_path) as opened:
        yield opened


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """A fresh store in a file."""
    with open_store("sqlite", tmp_path) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store that processes share."""
    with open_store(request.param, tmp_path) as opened:
        yield opened


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2031, 5, 1, 8, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, **span: int) -> None:
        """Let this time pass: `days=31`."""
        self.now += timedelta(**span)


@pytest.fixture
def clock() -> Clock:
    """A clock of one test."""
    return Clock()
