"""A scripted server for each test, and models that ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.scripted_server import ScriptedServer, scripted_server

from turnlog.infrastructure.models import OpenAIChatModel, RetryPolicy


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture
def model(server: ScriptedServer) -> Iterator[OpenAIChatModel]:
    with OpenAIChatModel("a-model", base_url=server.url, retry=RetryPolicy(backoff=0.001)) as model:
        yield model
