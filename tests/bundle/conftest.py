from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit.renderers import RENDERERS
from tests.bundle.sessions import SID, filled

from turnlog.infrastructure.bundle import export_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a session with every kind of event."""
    path = tmp_path_factory.mktemp("bundle") / "bundle.zip"
    with filled() as sessions:
        export_bundle(sessions, SID, path, renderers=RENDERERS)
    return path
