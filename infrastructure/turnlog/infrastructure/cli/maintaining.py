"""The commands about read models: they are made anew from the log, or compared with it."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from turnlog.application import Sessions
from turnlog.application.audit import Finding, SessionAudit, Verification
from turnlog.application.audit.verifying import verify_log
from turnlog.application.projections import Comparison, Difference, ReadModelOutdatedError, ReadModels
from turnlog.application.streams import SessionStreams
from turnlog.domain.errors import UnreadableEventError
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.output import console, note, print_table, several, visible, write_json
from turnlog.infrastructure.cli.progress import progress
from turnlog.infrastructure.cli.settings import Place, Settings, Status
from turnlog.infrastructure.sqlite import SqliteReadModels


def rebuild_models(settings: Settings, model: str | None) -> int:
    """Rebuild one read model, or all that the database has."""
    with database.application(settings.database) as app:
        models = _read_models(app, settings.database)
        total = models.log_size()
        started = time.monotonic()
        wanted = models.present() if model is None else (model,)
        with progress("Rebuilding", total, quiet=settings.json) as advance:
            rebuilt = models.rebuild(wanted, advance)
        broken = models.broken_links()
        unreadable = _named(app, models.unreadable_events())
    seconds = time.monotonic() - started
    status = Status.FOUND_OR_NOTHING_TO_DO if broken or unreadable else Status.DONE
    if settings.json:
        links = [{"aggregate_id": aggregate_id, "version": version} for aggregate_id, version in broken]
        made = [asdict(one) for one in rebuilt]
        write_json(
            {
                "rebuilt": made,
                "seconds": round(seconds, 3),
                "broken_links": links,
                "unreadable_events": unreadable,
            }
        )
        return status
    for one in rebuilt:
        console().print(f"{one.model}: rebuilt from {several(one.events, 'event')}", soft_wrap=True)
    note(f"{seconds:,.1f} seconds")
    for event in unreadable:
        name = event["session_id"] or f"aggregate {event['aggregate_id']}"
        note(f"without the event at version {event['version']} of {visible(name)}, which cannot be read")
    if broken:
        aggregate_id, version = broken[0]
        more = f", and {len(broken) - 1:,} more" if len(broken) > 1 else ""
        note(
            "the log is not as it was recorded, and now the read models are as it is: the event at version "
            f"{version} of aggregate {aggregate_id} does not follow on the one in front of it{more}. "
            "Run `turnlog audit verify`."
        )
    return status


def _named(app: Sessions, events: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
    """These events with the ids of their sessions, where the log tells them."""
    streams = SessionStreams(app)
    named = (streams.named(UnreadableEventError("", one, version)) for one, version in events)
    return [
        {"session_id": one.session_id, "aggregate_id": one.aggregate_id, "version": one.version}
        for one in named
    ]


def check_database(settings: Settings) -> int:
    """Verify the log, and compare boundaries and read models with it."""
    outdated: tuple[Difference, ...] = ()
    verification: Verification | None = None
    with database.application(settings.database, read_only=True) as app:
        models = _read_models(app, settings.database)
        if not models.lost():
            try:
                with database.reading(settings.database) as service:
                    verification = SessionAudit(service).verify()
            except ReadModelOutdatedError as error:
                outdated = (Difference(error.name, str(error)),)
        if verification is None:
            verification = verify_log(app)
        with progress("Comparing", models.log_size(), quiet=settings.json) as advance:
            comparison = models.compare(advance)
    findings = verification.findings
    named = {one.model for one in comparison.differences}
    differences = (*(one for one in outdated if one.model not in named), *comparison.differences)
    status = Status.FOUND_OR_NOTHING_TO_DO if findings or differences else Status.DONE
    if settings.json:
        write_json(
            {
                "log": verification.to_dict(),
                "differences": [asdict(one) for one in differences],
                "positions": comparison.positions,
                "behind": comparison.behind,
                "events": comparison.events,
            }
        )
        return status
    _print(findings, differences, comparison)
    return status


def _read_models(app: Sessions, place: Place) -> ReadModels:
    """The read models of this database."""
    if isinstance(place, Path):
        return SqliteReadModels(app)
    from turnlog.infrastructure.postgres import PostgresReadModels

    return PostgresReadModels(app)


def _print(findings: tuple[Finding, ...], differences: tuple[Difference, ...], found: Comparison) -> None:
    if findings or differences:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("WHAT", "SESSION", ""):
            table.add_column(name, overflow="fold")
        for finding in findings:
            name = finding.session_id or finding.aggregate_id or "?"
            where = "" if finding.version is None else f"version {finding.version}: "
            table.add_row(
                Text("log", "red"), Text(visible(name), "cyan"), f"{where}{finding.kind}, {finding.detail}"
            )
        for one in differences:
            name = one.session_id or one.aggregate_id or ""
            table.add_row(Text(one.model, "red"), Text(visible(name), "cyan"), Text(visible(one.detail)))
        print_table(table)
    out = console()
    out.print(f"log: {several(found.events, 'event')}, {_count(len(findings))}", soft_wrap=True)
    by_model = [one.model for one in differences]
    for name in ("boundaries", *found.positions):
        behind = found.behind.get(name, 0)
        newest = "event is" if behind == 1 else f"{behind:,} events are"
        stands = f"; the newest {newest} read from the log" if behind else ""
        out.print(f"{name}: {_count(by_model.count(name))}{stands}", soft_wrap=True)


def _count(differences: int) -> str:
    return f"{differences:,} differ" if differences else "nothing differs"
