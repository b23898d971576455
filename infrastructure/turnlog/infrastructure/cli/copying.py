"""The commands about copies of the database: backup, restore, erasures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from turnlog.application.erasing import BackupError, ErasureDue
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.moments import minute, required_time
from turnlog.infrastructure.cli.output import console, print_table, visible, write_json
from turnlog.infrastructure.cli.outputs import require_apart
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.sqlite import restore


def back_up(settings: Settings, file: Path) -> int:
    """Copy the database into a file that does not exist yet."""
    require_apart(settings, file)
    with database.reading(settings.database) as service:
        service.backup(file)
    size = file.stat().st_size
    if settings.json:
        write_json({"backup": str(file), "bytes": size})
    else:
        console().print(f"Backed up to {visible(str(file))} ({size:,} bytes).", soft_wrap=True)
    return Status.DONE


def bring_back(settings: Settings, file: Path) -> int:
    """Make the database from a backup."""
    if not isinstance(settings.database, Path):
        raise BackupError("A PostgreSQL database is brought back with its own tools: use pg_restore or psql.")
    restore(file, settings.database)
    with database.changing(settings.database):
        pass  # the first to open it puts it into the mode in which it can be used by several at once
    if settings.json:
        write_json({"restored": str(settings.database), "backup": str(file)})
    else:
        console().print(
            f"Restored {visible(str(settings.database))}. What was deleted since the backup is in it again: "
            "`turnlog erasures --since TIME` lists it.",
            soft_wrap=True,
        )
    return Status.DONE


def show_erasures(settings: Settings, since: str) -> int:
    """List what must be deleted again; status 1 when nothing must."""
    time = required_time("--since", since)
    with database.reading(settings.database) as service:
        due = service.erasures(time)
    if settings.json:
        write_json([_data(one) for one in due])
    elif due:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("SESSION", overflow="fold")
        table.add_column("VERSION", justify="right", no_wrap=True)
        table.add_column("DELETED (UTC)", no_wrap=True)
        for one in due:
            version = "" if one.event_version is None else f"{one.event_version}"
            table.add_row(Text(visible(one.session_id), "cyan"), version, minute(one.deleted_at))
        print_table(table)
        for note in _what_to_do(due):
            console().print(note, style="dim", soft_wrap=True)
    else:
        console().print("Nothing has to be deleted again.")
    return Status.DONE if due else Status.FOUND_OR_NOTHING_TO_DO


def _data(due: ErasureDue) -> dict[str, object]:
    of_event = {} if due.event_version is None else {"version": due.event_version, "event": due.event_id}
    return {"id": due.session_id, "deleted_at": due.deleted_at.isoformat(), **of_event}


def _what_to_do(due: Sequence[ErasureDue]) -> list[str]:
    notes: list[str] = []
    if any(one.event_version is None for one in due):
        notes.append("`turnlog delete ID --yes` deletes a session again.")
    if any(one.event_version is not None for one in due):
        notes.append("`turnlog redact ID --version N …` removes the content of an event again.")
    return notes
