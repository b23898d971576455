from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.conformance_stores import STORES, Store, open_store


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store of each kind."""
    name: Any = request.param
    with open_store(name, tmp_path) as opened:
        yield opened
