"""The commands that add to logs: import, compact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from turnlog.application import SessionService
from turnlog.domain.compaction import CompactionReason, CompactionResult, CompactionTrigger
from turnlog.domain.errors import SessionIdUnavailableError
from turnlog.domain.triggers import CompositeCompactionTrigger, TokenCountTrigger, TurnCountTrigger
from turnlog.infrastructure.bundle import is_bundle
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.asking import Asked
from turnlog.infrastructure.cli.bundling import import_bundles
from turnlog.infrastructure.cli.failures import CommandUsageError, InputFileError
from turnlog.infrastructure.cli.options import StrategyName, SummarizerName
from turnlog.infrastructure.cli.output import console, one_line, several, visible, write_json
from turnlog.infrastructure.cli.progress import progress
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.cli.strategies import budget_of, strategy_of
from turnlog.infrastructure.formats.imported import Fate, ImportedFile
from turnlog.infrastructure.formats.importing import DEFAULT_MAX_SIZE, read_file
from turnlog.infrastructure.formats.writing import LogsDivergedError, WrittenSession, write_session

_SHOWN = 20
"""Sessions of a file that are named."""


@dataclass
class _Written:
    """What became of the sessions of a file, and why some were left out, by their ids."""

    file: ImportedFile
    sessions: list[WrittenSession] = field(default_factory=list[WrittenSession])
    refused: dict[str, str] = field(default_factory=dict[str, str])


def import_files(
    settings: Settings, paths: Sequence[Path], file_format: str | None, max_size: int | None
) -> int:
    """Check every file to its end, then write what the database does not hold of them.

    A session that cannot be written is left out; then the status is 4.
    """
    for path in paths:
        if not path.is_file():
            raise InputFileError(path)
    bundles = [path for path in paths if file_format is None and is_bundle(path)]
    if bundles:
        if len(bundles) < len(paths):
            raise CommandUsageError("Bundles and other files are imported one kind at a time.")
        return import_bundles(settings, bundles)
    files: list[ImportedFile] = []
    with progress("Checking", len(paths), quiet=settings.json) as advance:
        for path in paths:
            files.append(read_file(path, format=file_format, max_size=max_size or DEFAULT_MAX_SIZE))
            advance(1)
    total = sum(file.entry_count for file in files)
    with (
        database.changing(settings.database, create=True) as service,
        progress("Importing", total, quiet=settings.json) as advance,
    ):
        written = [_write_file(service, file, advance) for file in files]
    if settings.json:
        write_json([_file_data(one) for one in written])
    else:
        for one in written:
            _print_file(one)
    return Status.CONFLICT if any(one.refused for one in written) else Status.DONE


def _write_file(service: SessionService, file: ImportedFile, advance: Callable[[int], object]) -> _Written:
    written = _Written(file)
    for session in file.sessions():
        try:
            written.sessions.append(write_session(service, session, on_progress=advance))
        except SessionIdUnavailableError:
            written.refused[session.id] = "was deleted here, its id is not used again"
        except LogsDivergedError as error:
            written.refused[session.id] = (
                f"differs from the log here at version {error.version}; import it into another database"
            )
        else:
            continue
        advance(len(session.entries))
    return written


def compact_session(
    settings: Settings,
    given: str,
    *,
    strategy: StrategyName,
    sizes: Mapping[str, int],
    summarizer: SummarizerName,
    asked: Asked,
    branch: str | None,
    when_turns: int | None,
    when_tokens: int | None,
) -> int:
    """One pass with the strategy in the size that these options give; status 1 when it had nothing to do."""
    chosen = strategy_of(strategy, sizes, summarizer, asked)
    trigger = _trigger(when_turns, when_tokens)
    with database.changing(settings.database) as service:
        session_id = database.session_id(service, given)
        result = service.compact(session_id, trigger, chosen, branch=branch)
    if settings.json:
        write_json(_result_data(session_id, branch, result))
    else:
        console().print(_result_text(session_id, branch, result), soft_wrap=True)
        budget = budget_of(strategy, sizes)
        if budget is not None and (result.tokens_after or result.tokens_before or 0) > budget:
            console().print(
                f"That is above the budget of {budget:,}: what always stays (the newest turn, the system "
                "message, summaries) is larger.",
                soft_wrap=True,
            )
    if result.reason is CompactionReason.RACE_LOST:
        return Status.CONFLICT
    return Status.FOUND_OR_NOTHING_TO_DO if result.is_unchanged else Status.DONE


def _trigger(when_turns: int | None, when_tokens: int | None) -> CompactionTrigger | None:
    triggers: list[CompactionTrigger] = []
    if when_turns is not None:
        triggers.append(TurnCountTrigger(when_turns))
    if when_tokens is not None:
        triggers.append(TokenCountTrigger(when_tokens))
    return CompositeCompactionTrigger.any_of(*triggers) if triggers else None


def _print_file(written: _Written) -> None:
    out = console()
    file, found = written.file, written.sessions
    out.print(f"{visible(str(file.path))} ({file.format})", style="bold", soft_wrap=True)
    for line in file.report.lines():
        out.print(f"  {visible(line)}", soft_wrap=True)
    for session in found[:_SHOWN]:
        held = f", {session.held:,} there before" if session.held else ""
        out.print(f"  session {one_line(session.id)}: {session.written:,} written{held}", soft_wrap=True)
        for note in session.notes():
            out.print(f"    {visible(note)}", soft_wrap=True)
    if len(found) > _SHOWN:
        out.print(f"  … {len(found) - _SHOWN:,} more sessions", style="dim")
    if not written.refused:
        return
    count = len(written.refused)
    out.print(f"  not imported: {count:,} session{'' if count == 1 else 's'}")
    err = console(stderr=True)
    for session_id, reason in islice(written.refused.items(), _SHOWN):
        line = f"turnlog: {visible(str(file.path))}: session {one_line(session_id)}: {reason}"
        err.print(line, soft_wrap=True)
    if count > _SHOWN:
        err.print(f"turnlog: … {count - _SHOWN:,} more sessions", style="dim")


def _file_data(written: _Written) -> dict[str, Any]:
    file = written.file
    report = {fate.name.lower(): file.report.of(fate) for fate in Fate}
    sessions = [
        {
            "id": session.id,
            "written": session.written,
            "held": session.held,
            "grown": session.grown,
            "differing": session.differing,
        }
        for session in written.sessions
    ]
    return {
        "path": str(file.path),
        "format": file.format,
        "sha256": file.sha256,
        **report,
        "sessions": sessions,
        "refused": [{"id": session_id, "reason": reason} for session_id, reason in written.refused.items()],
    }


def _result_text(session_id: str, branch: str | None, result: CompactionResult) -> str:
    whose = one_line(session_id) + ("" if branch is None else f", branch {one_line(branch)}")
    if result.is_unchanged:
        why = f"{result.reason} ({result.detail})" if result.detail else result.reason
        return f"Nothing was compacted: {why}. The view of {whose} has {result.tokens_before or 0:,} tokens."
    boundary = result.boundary.version if result.boundary else result.version
    return (
        f"Compacted {whose}: {several(len(result.covered_events), 'message')} left the view, "
        f"{len(result.pinned_events) + len(result.preserved_events):,} stay"
        f"{', a summary stands for the rest' if result.summary else ''}; "
        f"{result.tokens_before or 0:,} → {result.tokens_after or 0:,} tokens. "
        f"The boundary is version {boundary}."
    )


def _result_data(session_id: str, branch: str | None, result: CompactionResult) -> dict[str, Any]:
    return {
        "session": session_id,
        "branch": branch,
        "compacted": not result.is_unchanged,
        "reason": str(result.reason),
        "detail": result.detail,
        "covered": len(result.covered_events),
        "pinned": len(result.pinned_events),
        "preserved": len(result.preserved_events),
        "summary": len(result.summary),
        "tokens_before": result.tokens_before,
        "tokens_after": result.tokens_after,
        "boundary": result.boundary.id if result.boundary else None,
        "version": result.version,
    }
