"""The commands about read models: they are made anew from the log, or compared with it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from rich.table import Table
from rich.text import Text

from turnlog.application import Sessions
from turnlog.application.audit import Finding, FindingKind, SessionAudit, Verification
from turnlog.application.audit.findings import LostEvents, joined
from turnlog.application.audit.verifying import verify_log
from turnlog.application.projections import Comparison, Difference, ReadModelOutdatedError, ReadModels
from turnlog.application.projections.comparing import LOG
from turnlog.application.projections.maintaining import MODELS
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
        found = _Found.of(app, models)
    seconds = time.monotonic() - started
    if settings.json:
        made = [asdict(one) for one in rebuilt]
        write_json({"rebuilt": made, "seconds": round(seconds, 3), **asdict(found)})
        return found.status
    for one in rebuilt:
        gone = ", as it was gone" if one.was_gone else ""
        console().print(f"{one.model}: rebuilt from {several(one.events, 'event')}{gone}", soft_wrap=True)
    if seconds >= 1:
        note(f"it took {seconds:,.0f} seconds")
    for line in found.lines():
        note(line)
    return found.status


@dataclass(frozen=True)
class _Found:
    """What a rebuild found to be wrong with the log, with the ids of sessions where they are known."""

    broken_links: list[dict[str, Any]]
    missing_events: list[dict[str, Any]]
    repeated_ids: list[dict[str, Any]]
    unreadable_events: list[dict[str, Any]]

    @classmethod
    def of(cls, app: Sessions, models: ReadModels) -> Self:
        """What the rebuilds of these models found."""
        streams = SessionStreams(app)

        def named(aggregate_id: str, version: int, session_id: str | None = None) -> dict[str, Any]:
            known = session_id or streams.named(UnreadableEventError("", aggregate_id, version)).session_id
            return {"session_id": known, "aggregate_id": aggregate_id}

        return cls(
            [named(*place) | {"version": place[1]} for place in models.broken_links()],
            [
                named(one.aggregate_id, one.first, one.session_id) | {"first": one.first, "last": one.last}
                for one in models.missing_events()
            ],
            [
                named(one.aggregate_id, one.first)
                | {"event_id": one.event_id, "versions": [one.first, one.second]}
                for one in models.repeated_ids()
            ],
            [named(*place) | {"version": place[1]} for place in models.unreadable_events()],
        )

    @property
    def status(self) -> Status:
        """Whether anything was found."""
        found = self.broken_links or self.missing_events or self.repeated_ids or self.unreadable_events
        return Status.FOUND_OR_NOTHING_TO_DO if found else Status.DONE

    def lines(self) -> Iterator[str]:
        """What is said of it, one line for each thing, and then what to do."""
        for one in self.unreadable_events:
            yield f"{_name(one)}: event {one['version']} cannot be read, the models are made without it"
        for one in self.missing_events:
            yield f"{_name(one)}: {LostEvents(one['first'], one['last'])} in the log"
        for one in self.broken_links:
            yield f"{_name(one)}: event {one['version']} is not the one that was recorded"
        for one in self.repeated_ids:
            versions = "versions {} and {}".format(*one["versions"])
            yield f"{_name(one)}: id {one['event_id']!r} is in the log twice, at {versions}"
        if self.broken_links or self.missing_events:
            yield LOG_ADVICE
        for one in self.repeated_ids[:1]:
            yield _repeat_advice(_name(one), one["versions"][1])


LOG_ADVICE: Final = "no rebuild repairs the log: take what is wrong there from a backup"
UNVERIFIED: Final = (
    "not verified: whether newest events, or sessions as a whole, are gone: no row of the directory tells"
)
KEEP_ADVICE: Final = "keep this output and a copy: a rebuild forgets what was lost"
GUIDE_ADVICE: Final = "first follow docs/howto/damaged-log.md, and rebuild only where it says so"


def _repeat_advice(name: str, version: int) -> str:
    return (
        "both stay in the log; to remove the content of the second: "
        f"turnlog redact {shlex.quote(name)} --version {version} --reason TEXT --by NAME --yes"
    )


def _name(one: dict[str, Any]) -> str:
    """The session, or what is known of it."""
    return str(one["session_id"] or f"aggregate {one['aggregate_id']}")


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
    if verification.sessions and "directory" not in comparison.positions:
        verification = replace(verification, notes=(*verification.notes, UNVERIFIED))
    findings = verification.findings
    named = {one.model for one in comparison.differences}
    told = {(one.aggregate_id, one.version) for one in findings}
    differences = (
        *(one for one in outdated if one.model not in named),
        *(
            one
            for one in comparison.differences
            if one.model != LOG or (one.aggregate_id, one.version) not in told
        ),
    )
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
    for one in verification.notes:
        console().print(visible(one), soft_wrap=True)
    return status


def _read_models(app: Sessions, place: Place) -> ReadModels:
    """The read models of this database."""
    if isinstance(place, Path):
        return SqliteReadModels(app)
    from turnlog.infrastructure.postgres import PostgresReadModels

    return PostgresReadModels(app)


def _print(findings: tuple[Finding, ...], differences: tuple[Difference, ...], found: Comparison) -> None:
    """One line for each thing that is wrong, then the counts, then what to run."""
    names = {one.aggregate_id: one.session_id for one in differences if one.session_id is not None}
    rows = {one.aggregate_id for one in differences if one.model == "directory"}  # which says the same
    told = tuple(
        replace(one, session_id=one.session_id or names.get(one.aggregate_id))
        for one in findings
        if one.kind != FindingKind.UNKNOWN_SESSION or one.aggregate_id not in rows
    )
    of_log = [
        *((one.session_id or one.aggregate_id or "?", what) for one, what in joined(told)),
        *((_session(one), one.detail) for one in differences if one.model == LOG),
    ]
    others = [one for one in differences if one.model != LOG]
    lines = [*((LOG, *line) for line in of_log), *((one.model, _session(one), one.detail) for one in others)]
    if lines:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for title in ("WHAT", "SESSION", ""):
            table.add_column(title, overflow="fold")
        for what, name, detail in lines:
            table.add_row(Text(what, "red"), Text(visible(name), "cyan"), Text(visible(detail)))
        print_table(table)
    out = console()
    out.print(f"log: {several(found.events, 'event')}, {_count(len(of_log))}", soft_wrap=True)
    by_model = [one.model for one in others]
    for name in ("boundaries", *found.positions):
        behind = found.behind.get(name, 0)
        newest = "event is" if behind == 1 else f"{behind:,} events are"
        stands = f"; the newest {newest} read from the log" if behind else ""
        out.print(f"{name}: {_count(by_model.count(name))}{stands}", soft_wrap=True)
    for line in _advice(len(of_log) > 0, [one for one in others if "turnlog " not in one.detail]):
        out.print(visible(line), soft_wrap=True)


def _session(one: Difference) -> str:
    return one.session_id or one.aggregate_id or ""


def _advice(is_log_wrong: bool, differences: list[Difference]) -> Iterator[str]:
    """What to run."""
    if is_log_wrong or any(one.model == "boundaries" for one in differences):
        yield LOG_ADVICE
    rebuilt = {one.model for one in differences if one.version is None}.intersection(MODELS)
    if is_log_wrong:
        yield KEEP_ADVICE
        yield GUIDE_ADVICE
    elif rebuilt:
        only = f" {min(rebuilt)}" if len(rebuilt) == 1 else ""
        yield f"to repair {_listed(rebuilt)}: turnlog rebuild{only}"
    for one in differences:
        if one.version is not None:
            yield _repeat_advice(_session(one), one.version)
            return


def _listed(models: set[str]) -> str:
    *some, last = sorted(models)
    return f"{', '.join(some)} and {last}" if some else last


def _count(differences: int) -> str:
    return several(differences, "difference") if differences else "nothing differs"
