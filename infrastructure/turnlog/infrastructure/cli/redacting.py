"""The command `redact`."""

from __future__ import annotations

from turnlog.application import SessionService
from turnlog.application.erasing import Redaction
from turnlog.domain.errors import UnknownEventError
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.output import console, one_line, visible, write_json
from turnlog.infrastructure.cli.settings import Settings, Status


def redact_event(
    settings: Settings,
    given: str,
    *,
    event: str | None,
    version: int | None,
    reason: str,
    by: str,
    cascade: bool,
    confirmed: bool,
) -> int:
    """Remove a content, if that was confirmed; not status 0 while a byte of it may be left."""
    named = event if event is not None else version
    if named is None or (event is not None and version is not None):
        raise CommandUsageError("Name the event by --event or by --version.")
    with database.changing(settings.database) as service:
        session_id = database.session_id(service, given)
        _require_event(service, session_id, named)
        if not confirmed:
            raise CommandUsageError(
                f"This would remove the content of event {named!r} of session {session_id!r} for good. "
                "Add --yes to do it."
            )
        redaction = service.redact(session_id, named, reason=reason, by=by, cascade=cascade)
    if settings.json:
        write_json(_data(redaction, named))
    else:
        console().print(_text(settings, redaction, named), soft_wrap=True)
    return Status.CONFLICT if redaction.erasure == "pending" else Status.DONE


def _require_event(service: SessionService, session_id: str, named: str | int) -> None:
    """Refuse an event that is not there; a number that was given as an id may be meant as a version."""
    if isinstance(named, int):
        if named > service.version(session_id):
            raise UnknownEventError(session_id, named)
        return
    try:
        service.get_event(session_id, named)
    except UnknownEventError as error:
        if named.isdecimal():
            error.add_note(f"If it is a version: --version {named}.")
        raise


def _data(redaction: Redaction, named: str | int) -> dict[str, object]:
    return {
        "session": redaction.session_id,
        "event": named,
        "version": redaction.version,
        "is_repeat": redaction.is_repeat,
        "redacted": list(redaction.redacted),
        "summaries": list(redaction.summaries),
        "prompts": list(redaction.prompts),
        "metadata": list(redaction.metadata),
        "erasure": redaction.erasure,
        "reason": redaction.reason,
    }


def _text(settings: Settings, redaction: Redaction, named: str | int) -> str:
    event = f"Event {one_line(str(named))} of session {one_line(redaction.session_id)}"
    done = "had been redacted before" if redaction.is_repeat else "is redacted"
    lines = [f"{event} {done}. Nothing of its content is left in {visible(str(settings.database))}."]
    if redaction.erasure == "pending":
        why = visible(redaction.reason or "")
        lines = [f"{event} {done}, but its erasure is pending. {why}", "`turnlog sweep` completes it."]
    further = len(redaction.redacted) - (not redaction.is_repeat)
    if further > 0:
        lines.append(f"Redacted with it: {further:,} further {'events' if further > 1 else 'event'}.")
    carriers = {
        "summaries": redaction.summaries,
        "prompts": redaction.prompts,
        "metadata at version": redaction.metadata,
    }
    named_too = [f"{kind} {', '.join(map(str, ids))}" for kind, ids in carriers.items() if ids]
    if named_too:
        lines.append(one_line(f"What may carry it on: {'; '.join(named_too)}."))
        lines.append("--cascade redacts these too; metadata in force have to be replaced first.")
    return "\n".join(lines)
