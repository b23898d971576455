"""A scripted server for each test, and the two ways to ask."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from tests.support.asking import Ask, ask_async, ask_sync
from tests.support.scripted_server import ScriptedServer, scripted_server

from turnlog.infrastructure.models import Limits, RetryPolicy

QUICK = RetryPolicy(backoff=0.001)
BOUND = Limits(read=10, total=20)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A running server that answers as scripted."""
    with scripted_server() as running:
        yield running


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest, server: ScriptedServer) -> Ask:
    """Asks the scripted server, in both ways, with short pauses."""
    return partial(request.param, base_url=server.url, retry=QUICK, limits=BOUND)
