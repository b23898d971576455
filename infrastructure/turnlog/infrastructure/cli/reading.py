"""The commands that only read: sessions, log, view, export."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from turnlog.application import SessionRow, SessionService
from turnlog.application.audit import SessionAudit
from turnlog.application.turns import CallReference
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionNotFoundError, UnknownVersionError
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import said_at
from turnlog.domain.view import View
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError, NotYetBegunError
from turnlog.infrastructure.cli.moments import EXAMPLE, minute, time_of
from turnlog.infrastructure.cli.options import Form
from turnlog.infrastructure.cli.output import (
    console,
    note,
    one_line,
    one_line_of,
    print_table,
    visible,
    write_json,
    write_json_text,
)
from turnlog.infrastructure.cli.outputs import STDOUT, require_output, write_output
from turnlog.infrastructure.cli.progress import progress
from turnlog.infrastructure.cli.rendering import event_line, message_block
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.cli.wholeness import note_lost

_ASKED = "@ask"
"""The id of the message that `--ask` adds to a view."""

_NOT_LISTED = "not listed: turn marks, metadata, expiry, holds (lost events: `turnlog check`)"
"""What a log says of versions that it does not show."""

_TITLE = 16
"""Cells that a title gets at least."""

_BESIDE = 28
"""Cells of a line of sessions that are neither id, expiry nor title."""

_EXPIRY = 12
"""Cells of a line that the expiry takes."""


def show_sessions(settings: Settings, *, principal: str | None, limit: int, before: str | None) -> int:
    """List the sessions, all or those of a principal, newest first."""
    with database.reading(settings.database) as service:
        scope = service if principal is None else service.scoped_to(principal)
        position = None if before is None else database.position(scope, before)
        found = scope.list_sessions(limit=limit + 1, before=position)
    rows = found[:limit]
    if settings.json:
        write_json([_row_data(row) for row in rows])
        return Status.DONE
    out = console()
    if not found:
        out.print(_no_sessions(settings, principal, before), soft_wrap=True)
        return Status.DONE
    print_table(sessions_table(rows, out.width if out.is_terminal else None))
    if len(found) > limit:
        out.print(f"There are more: --before {one_line(rows[-1].session_id)}", style="dim", soft_wrap=True)
    return Status.DONE


def show_log(settings: Settings, given: str, limit: int) -> int:
    """Show the newest events of a session, in order."""
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        newest = service.version(session_id)
        events = service.get_events(session_id, EventFilter(last_n=limit + 1))
        shown = events[-limit:]
        first = shown[0].version if len(events) > limit else 0
        lost = SessionAudit(service).lost(session_id, after=first - 1)
    note_lost(session_id, lost)
    if settings.json:
        write_json([event_data(event) for event in shown])
        return Status.DONE
    out = console()
    if len(events) > limit:
        out.print(f"… earlier events: --limit {limit * 2}", style="dim")
    day = None
    for event in shown:
        if said_at(event).date() != day:
            day = said_at(event).date()
            out.print(f"── {day} UTC", style="dim")
        out.print(event_line(event, out.width if out.is_terminal else None), soft_wrap=True)
    if any(event.archived for event in shown):
        out.print("· no longer in the view", style="dim")
    if _has_gaps(shown, newest, is_whole=len(events) <= limit):
        out.print(_NOT_LISTED, style="dim")
    return Status.DONE


def _has_gaps(shown: Sequence[SessionEvent], newest: int, *, is_whole: bool) -> bool:
    """Whether there are versions of which nothing is shown, but for the opening one, which says nothing."""
    versions = [event.version for event in shown]
    first = 0 if is_whole else versions[0] - 1
    return newest - first > len(versions)


def show_view(
    settings: Settings,
    given: str,
    *,
    at: str | None,
    form: Form,
    ask: str | None,
    branch: str | None,
    model: str,
) -> int:
    """Show what the model is told, in the form that is asked for."""
    at_version, at_time = _moment(at)
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        view = _view(service, session_id, at_version, at_time)
        open_calls = service.awaited_calls(session_id, at_version=view.version)
        lost = SessionAudit(service).lost(session_id, after=view.version) if at is None else ()
    note_lost(session_id, lost)
    if branch is not None and not settings.json and all(event.branch != branch for event in view.events):
        note(f"no message in the view is of the branch {branch!r}; what every branch is told is shown")
    if ask is not None:
        view = _with_question(view, session_id, ask)
    match form:
        case Form.TEXT:
            _print_view(session_id, view, branch, open_calls)
        case Form.JSON:
            told = view.told_events(branch)
            write_json(
                {
                    "session": session_id,
                    "version": view.version,
                    "ids": [event.id for event in told],
                    "messages": [event.message.to_dict() for event in told if event.message],
                }
            )
        case Form.OPENAI | Form.ANTHROPIC:
            with _notes_on_stderr(quiet=settings.json):
                body = _request(form, view, branch, model)
            write_json(body)
    return Status.DONE


def _view(service: SessionService, session_id: str, at_version: int | None, at_time: datetime | None) -> View:
    try:
        return service.view(session_id, at_version=at_version, at_time=at_time)
    except UnknownVersionError as error:
        details = service.find(session_id)
        if at_time is None or details is None:
            raise
        raise NotYetBegunError(session_id, at_time, details.created_at) from error


def export_session(settings: Settings, given: str, output: Path | None, *, force: bool) -> int:
    """Write the whole log as JSON lines, to a file at once or to stdout as it is read."""
    from turnlog.infrastructure.formats import turnlog_jsonl  # late: the other commands do without

    if output is not None:
        require_output(settings, output, force=force)
    with database.reading(settings.database) as service:
        details = service.find(database.session_id(service, given))
        if details is None:
            raise SessionNotFoundError(given)
        events = service.iter_events(details.id)
        if output is None or output == STDOUT:
            for line in turnlog_jsonl.lines(details.id, details.metadata, events):
                write_json_text(line)
        else:
            with progress("Exporting", details.version, quiet=settings.json) as advance:
                events = counted(events, advance)
                lines = turnlog_jsonl.lines(details.id, details.metadata, events)
                write_output(output, (f"{line}\n" for line in lines), force=force)
        lost = SessionAudit(service).lost(details.id)
    note_lost(details.id, lost)
    return Status.DONE


def counted(events: Iterable[SessionEvent], advance: Callable[[int], object]) -> Iterator[SessionEvent]:
    """The events; `advance` is told how many versions are done with, also those that are no entries."""
    done = 0
    for event in events:
        yield event
        advance(event.version - done)
        done = event.version


def event_data(event: SessionEvent) -> dict[str, Any]:
    """An entry of the log as plain data. Times are ISO texts in UTC."""
    data: dict[str, Any] = {
        "version": event.version,
        "id": event.id,
        "type": event.type,
        "time": event.timestamp.isoformat(),
    }
    if event.occurred_at:
        data["occurred_at"] = event.occurred_at.isoformat()
    if event.branch is not None:
        data["branch"] = event.branch
    if event.message:
        data["in_view"] = not event.archived
        data["synthetic"] = event.synthetic
        data["message"] = event.message.to_dict()
    if event.boundary:
        data["boundary"] = asdict(event.boundary)
    if event.payload is not None:
        data["payload"] = dict(event.payload)
    if event.context:
        data["context"] = dict(event.context)
    return data


def sessions_table(rows: Sequence[SessionRow], width: int | None) -> Table:
    """The table in lines of this width: titles are cut, and ids folded where that is not enough.

    The expiry is left out where it would take room that ids and titles need.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("SESSION", overflow="fold")
    table.add_column("CREATED (UTC)", no_wrap=True)
    table.add_column("MSGS", justify="right", no_wrap=True)
    has_titles = any(map(_title, rows))
    ids = max(cell_len(visible(row.session_id)) for row in rows)
    room = None if width is None else width - ids - _BESIDE
    has_expiry = any(row.expires_at for row in rows)
    if has_expiry and room is not None:
        has_expiry = room >= _EXPIRY + _TITLE * has_titles
        room -= _EXPIRY * has_expiry
    if has_expiry:
        table.add_column("EXPIRES", no_wrap=True)
    table.add_column("TITLE" if has_titles else "", no_wrap=True)
    now = datetime.now(UTC)
    for row in rows:
        title = _title(row)
        table.add_row(
            Text(visible(row.session_id), "cyan"),
            minute(row.created_at),
            f"{row.messages:,}",
            *([_expiry(row, now)] if has_expiry else []),
            Text(one_line(title) if room is None else one_line_of(title, max(_TITLE, room))),
        )
    return table


def _expiry(row: SessionRow, now: datetime) -> str:
    """The day on which it expires (UTC), if it does, or that this has passed."""
    if row.expires_at is None:
        return ""
    return "expired" if row.expires_at <= now else minute(row.expires_at).partition(" ")[0]


def _title(row: SessionRow) -> str:
    title = row.metadata.get(SessionAttributes.TITLE, "")
    return title if isinstance(title, str) else json.dumps(title, ensure_ascii=False)


def _no_sessions(settings: Settings, principal: str | None, before: str | None) -> str:
    if before is not None:
        return "No more sessions."
    where = visible(str(settings.database))
    if principal is not None:
        return f"No sessions of {one_line(principal)} in {where}."
    return f"No sessions in {where} yet. `turnlog import FILE` makes some."


def _row_data(row: SessionRow) -> dict[str, Any]:
    return {
        "id": row.session_id,
        "created_at": row.created_at.isoformat(),
        "modified_at": row.modified_at.isoformat(),
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
        "version": row.version,
        "messages": row.messages,
        "metadata": dict(row.metadata),
    }


def _moment(at: str | None) -> tuple[int | None, datetime | None]:
    """The version or the time that `--at` names."""
    if at is None:
        return None, None
    if re.fullmatch(r"[0-9]{1,18}", at):
        return int(at), None
    time = time_of(at)
    if time is None:
        raise CommandUsageError(f"--at {at!r} is neither a version, as in 12, nor a time, as in {EXAMPLE}.")
    return None, time


def _with_question(view: View, session_id: str, question: str) -> View:
    """The view with a next user message, as if it had been appended."""
    asked = SessionEvent(
        id=_ASKED,
        type=EventType.MESSAGE,
        version=view.version + 1,
        timestamp=datetime.now(UTC),
        session_id=session_id,
        message=Message.user(question),
    )
    return View((*view.events, asked), view.version)


def _print_view(
    session_id: str, view: View, branch: str | None, open_calls: Collection[CallReference]
) -> None:
    out = console()
    told = view.told_events(branch)
    out.print(
        Text(f"What the model is told · {one_line(session_id)} · version {view.version}", "bold"),
        soft_wrap=not out.is_terminal,
    )
    for event in told:
        out.print()
        out.print(message_block(event, open_calls), soft_wrap=not out.is_terminal)
    out.print()
    count = f"{len(told):,} message{'' if len(told) == 1 else 's'}"
    elsewhere = len(view.events) - len(told)
    out.print(count + (f"; {elsewhere:,} more belong to branches" if elsewhere else ""), style="dim")


def _request(form: Form, view: View, branch: str | None, model: str) -> Mapping[str, Any]:
    from turnlog.infrastructure.formats import anthropic_messages, openai_chat  # late: they are large

    if form is Form.OPENAI:
        return openai_chat.request(view, model=model, branch=branch)
    return anthropic_messages.request(view, model=model, branch=branch)


@contextmanager
def _notes_on_stderr(*, quiet: bool) -> Generator[None]:
    """Warnings as one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if not quiet:
        for warning in caught:
            note(str(warning.message))
