"""The command about reports."""

from __future__ import annotations

import tempfile
from pathlib import Path

from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.output import console, visible, write_json
from turnlog.infrastructure.cli.outputs import STDOUT, require_output, require_pages_apart, write_output
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.cli.wholeness import note_lost
from turnlog.infrastructure.report import write_report


def report_session(settings: Settings, given: str, output: Path, *, branch: str | None, force: bool) -> int:
    """Write the session as an HTML page, or for a very long log as several."""
    if output == STDOUT:
        return _print_page(settings, given, branch)
    require_output(settings, output, force=force)
    require_pages_apart(settings, output)
    with database.reading(settings.database) as service:
        written = write_report(
            service, database.session_id(service, given), output, branch=branch, replace=force
        )
    note_lost(written.session_id, written.lost)
    if settings.json:
        write_json(
            {
                "session": written.session_id,
                "version": written.version,
                "messages": written.messages,
                "files": [str(file) for file in written.files],
                "lost": [one.to_dict() for one in written.lost],
            }
        )
        return Status.DONE
    size = sum(file.stat().st_size for file in written.files)
    out = console()
    out.print(
        f"Wrote {visible(str(written.files[0]))} ({size:,} bytes). Open it in a browser.", soft_wrap=True
    )
    if len(written.files) > 1:
        out.print(
            f"The log is long: it is {len(written.files):,} pages, up to {visible(str(written.files[-1]))}. "
            "Keep them in one folder.",
            soft_wrap=True,
        )
    return Status.DONE


def _print_page(settings: Settings, given: str, branch: str | None) -> int:
    """Write the page to standard output; a log that needs several pages is refused."""
    with tempfile.TemporaryDirectory() as folder, database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        written = write_report(service, session_id, Path(folder) / "report.html", branch=branch)
        note_lost(written.session_id, written.lost)
        page, *further = written.files
        if further:
            raise CommandUsageError(
                f"The log is long: its report is {len(written.files):,} pages. Name a file with --output."
            )
        write_output(STDOUT, [page.read_bytes()], force=False)
    return Status.DONE
