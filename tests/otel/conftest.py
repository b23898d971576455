from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.otel.recorded import Recorded


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """A real SDK that exports into memory."""
    made = Recorded()
    yield made
    made.close()
