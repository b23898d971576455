"""The commands about copies of the database: backup, restore, erasures."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from turnlog.application.erasing import BackupError
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.moments import minute, required_time
from turnlog.infrastructure.cli.output import console, print_table, visible, write_json
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.sqlite import restore


def back_up(settings: Settings, file: Path) -> int:
    """Copy the database into a file that does not exist yet."""
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
        write_json([{"id": one.session_id, "deleted_at": one.deleted_at.isoformat()} for one in due])
    elif due:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("SESSION", overflow="fold")
        table.add_column("DELETED (UTC)", no_wrap=True)
        for one in due:
            table.add_row(Text(visible(one.session_id), "cyan"), minute(one.deleted_at))
        print_table(table)
        console().print("`turnlog delete ID --yes` deletes one again.", style="dim")
    else:
        console().print("No session has to be deleted again.")
    return Status.DONE if due else Status.FOUND_OR_NOTHING_TO_DO
