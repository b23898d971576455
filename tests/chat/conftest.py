from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chats import Characters, service

from turnlog.application.service import SessionService

ON_FILES = ("test_one_turn", "test_idempotency", "test_approval", "test_recording")


@pytest.fixture
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionService]:
    """A service whose messages cost a token, and one for each character of their rendering.

    It is on an SQLite file where threads, crashes or repeats are the subject, and in memory elsewhere.
    """
    if request.path.stem in ON_FILES:
        with service(tmp_path / "chat.db") as opened:
            yield opened
    else:
        with SessionService(token_estimator=Characters()) as opened:
            yield opened
