"""An evidence bundle of a session from which something was redacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.audit.renderers import RENDERERS

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.messages import Message
from turnlog.infrastructure.bundle import export_bundle, verify

WHY: Any = {"reason": "asked", "by": "bob"}


def test_a_bundle_verifies_and_holds_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    with SessionService() as sessions:
        sessions.create("s")
        audit = SessionAudit(sessions, renderers=RENDERERS)
        body = {"messages": [{"role": "user", "content": "the word is zinnia"}]}
        audit.record_prompt("s", body=body, append=[Message.user("the word is zinnia")])
        sessions.append_event("s", "ACME.NOTE", {"note": "zinnia"}, event_id="x")
        sessions.redact("s", 1, **WHY)
        sessions.redact("s", "x", **WHY)
        export_bundle(sessions, "s", file)
    report = verify.check(file.read_bytes())
    assert report.findings == []
    with ZipFile(file) as opened:
        assert not any(b"zinnia" in opened.read(name) for name in opened.namelist())
