from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chats import service

from turnlog.application.service import SessionService


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[SessionService]:
    """A service on an SQLite file; a message costs one token, and one for each character of its text."""
    with service(tmp_path / "chat.db") as opened:
        yield opened
