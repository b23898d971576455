"""The commands of `turnlog audit`: told, diff, explain, lineage, timeline, verify, heads."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rich.table import Table
from rich.text import Text

from turnlog.application import SessionService
from turnlog.application.audit import (
    BoundaryRef,
    EventRef,
    Finding,
    Heads,
    HeadSigner,
    HeadVerifier,
    Lineage,
    Moment,
    SessionAudit,
    Timeline,
    TimelineEntry,
    ToldBody,
)
from turnlog.domain.errors import MissingExtraError, SessionNotFoundError
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError, NothingRecordedError
from turnlog.infrastructure.cli.moments import time_of
from turnlog.infrastructure.cli.output import (
    console,
    note,
    one_line,
    one_line_of,
    print_table,
    several,
    visible,
    write_json,
    write_json_text,
)
from turnlog.infrastructure.cli.outputs import STDOUT, require_apart, require_output, write_output
from turnlog.infrastructure.cli.rendering import used
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.cli.wholeness import NAMED, note_lost

_HOW = {
    "message": "told it",
    "value": "told it as a text of their own",
    "summary": "told a summary that stands for it",
    "view": "were made by the application from a view that held it",
}
"""How prompts carry a message, in words."""

_WIDE = 100
"""Cells of a line that goes to a file or a pipe, where it is cut."""


def show_told(
    settings: Settings,
    given: str,
    call: str | None,
    *,
    attempt: int | None,
    output: Path | None,
    force: bool = False,
) -> int:
    """Show the body of a call, or write its bytes to a file."""
    if output is not None:
        require_output(settings, output, force=force)
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        audit = SessionAudit(service)
        wanted = _newest_call(audit, session_id) if call is None else _moment(call)
        found = audit.told(session_id, wanted, attempt=attempt)
    if output is not None:
        write_output(output, [found.body], force=force)
        if output == STDOUT:
            return Status.DONE
    if settings.json:
        write_json(found.to_dict())
        return Status.DONE
    out = console()
    out.print(Text(f"What the model was told · call {one_line(found.call_id)}", "bold"), soft_wrap=True)
    out.print(Text(_about(found), "dim"), soft_wrap=True)
    if output is None:
        out.print()
        write_json_text(_readable(found.body))
    else:
        out.print(f"{len(found.body):,} bytes written to {visible(str(output))}", soft_wrap=True)
    return Status.DONE


def show_diff(settings: Settings, given: str, before: str, after: str) -> int:
    """Show what came and what left; status 1 when nothing did."""
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        found = SessionAudit(service).diff(session_id, _moment(before), _moment(after))
    status = Status.FOUND_OR_NOTHING_TO_DO if found.is_empty else Status.DONE
    if settings.json:
        write_json(found.to_dict())
        return status
    out = console()
    title = f"{one_line(session_id)} · version {found.before} → {found.after}"
    out.print(Text(title, "bold"), soft_wrap=True)
    for boundary in found.boundaries:
        out.print(Text(_boundary(boundary), "dim"), soft_wrap=True)
    for left in found.left:
        _print_ref("-", left.event, "red", _by(left.boundary))
    for came in found.came:
        _print_ref("+", came.event, "green", _by(came.boundary))
    for change in found.changes:
        was, now = (json.dumps(value, ensure_ascii=False) for value in (change.before, change.after))
        out.print(Text(one_line_of(f"~ {change.name}: {was} → {now}", _width()), "yellow"), soft_wrap=True)
    out.print(f"{len(found.came):,} came, {len(found.left):,} left, {found.stayed:,} stayed", style="dim")
    return status


def show_explanation(settings: Settings, given: str, event: str, at: str | None) -> int:
    """Say why a message is in the view, or is not."""
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        event_id = database.event_id(service, session_id, event)
        audit = SessionAudit(service)
        found = audit.explain(session_id, event_id, None if at is None else _moment(at))
        carried = audit.carried(session_id, event_id)
        lost = audit.lost(session_id)
    note_lost(session_id, lost)
    if settings.json:
        write_json({**found.to_dict(), "carried": carried.to_dict()})
        return Status.DONE
    out = console()
    _print_ref(" ", found.event, "bold", "")
    out.print()
    out.print(visible(f"At version {found.at}: {found.sentence}"))
    for line in found.notes:
        out.print(visible(line))
    for how, words in _HOW.items():
        prompts = [one for one in carried.prompts if one.how == how and one.version <= found.at]
        if prompts:
            first, last = prompts[0], prompts[-1]
            out.print(
                visible(
                    f"{len(prompts):,} recorded prompt{'' if len(prompts) == 1 else 's'} {words}, from "
                    f"{first.call_id} (version {first.version}) to {last.call_id} (version {last.version})."
                ),
                style="dim",
            )
    return Status.DONE


def show_lineage(settings: Settings, given: str, summary: str | None) -> int:
    """Show what a summary stands for."""
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        audit = SessionAudit(service)
        named = None if summary is None else database.event_id(service, session_id, summary)
        found = audit.lineage(session_id, named or _newest_summary(audit, session_id))
    if settings.json:
        write_json({**found.to_dict(), "originals": [ref.to_dict() for ref in found.originals]})
        return Status.DONE
    _print_lineage(found, 0)
    count = len(found.originals)
    console().print(f"It stands for {count:,} message{'' if count == 1 else 's'} of the log.", style="dim")
    return Status.DONE


def show_timeline(settings: Settings, given: str) -> int:
    """List the steps of a session."""
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        found = SessionAudit(service).timeline(session_id)
    note_lost(session_id, found.lost)
    if settings.json:
        write_json(found.to_dict())
        return Status.DONE
    out = console()
    if found.entries:
        print_table(_timeline_table(found, _width()))
    for line in _totals(found):
        out.print(line, style="dim", soft_wrap=True)
    return Status.DONE


def verify_sessions(settings: Settings, given: str | None, *, heads: Path | None, key: str | None) -> int:
    """Check one session or all; status 1 when anything is found."""
    if key is not None and heads is None:
        raise CommandUsageError("--key says who signed the heads: give --heads FILE too.")
    former = None if heads is None else Heads.of_json(heads.read_bytes())
    verifier = None if key is None else _verifier(key)
    with database.reading(settings.database) as service:
        session_id = None if given is None else _session_to_verify(service, given)
        found = SessionAudit(service).verify(session_id, heads=former, signed_by=verifier)
    status = Status.DONE if found.is_whole else Status.FOUND_OR_NOTHING_TO_DO
    if settings.json:
        write_json({**found.to_dict(), "is_whole": found.is_whole})
        return status
    out = console()
    checked = f"{several(found.events, 'event')} of {several(found.sessions, 'session')}"
    if found.findings:
        print_table(_findings_table(found.findings))
        out.print(Text(f"{checked}: {len(found.findings):,} found wrong.", "bold red"), soft_wrap=True)
    else:
        are = "is" if found.heads_proven == 1 else "are"
        proven = f" {several(found.heads_proven, 'former head')} {are} part of it." if former else ""
        out.print(f"{checked}: the log is as it was recorded.{proven}", soft_wrap=True)
    for line in found.notes:
        note(line)
    if former is not None and former.signature is not None and verifier is None:
        note("the heads are signed, and nothing was checked against a key: give --key")
    return status


def export_heads(settings: Settings, *, output: Path | None, sign: Path | None, force: bool = False) -> int:
    """Write the newest chain values, to a file or to stdout; status 1 when the log lost events of some."""
    if output is not None:
        require_output(settings, output, force=force, inputs=[sign])
    if sign is not None:
        require_apart(settings, sign)
    signer = None if sign is None else signer_of(sign)
    with database.reading(settings.database) as service:
        found = SessionAudit(service).export_heads(signer=signer)
    status = Status.FOUND_OR_NOTHING_TO_DO if found.lost else Status.DONE
    for head in found.lost[:NAMED]:
        note(
            f"aggregate {head.aggregate_id.hex}: the log ends in front of version {head.version}, which the "
            "session's row tells of; its head is the one of the row"
        )
    if found.lost:
        more = f"{len(found.lost) - NAMED:,} more sessions lost their end; " if found.lost[NAMED:] else ""
        note(f"{more}`turnlog check` names what is gone")
    if output is None or output == STDOUT:
        write_json_text(found.to_json())
        return status
    write_output(output, [found.to_json(), "\n"], force=force)
    if settings.json:
        write_json(
            {"file": str(output), "heads": len(found.heads), "key": found.key, "lost": len(found.lost)}
        )
        return status
    signed = f", signed by key {found.key}" if found.key else ""
    console().print(f"{several(len(found.heads), 'head')} in {visible(str(output))}{signed}", soft_wrap=True)
    return status


def _session_to_verify(service: SessionService, given: str) -> str:
    """The session that is meant; one whose newest events are gone may no longer be read, but is verified."""
    try:
        return database.session_id(service, given)
    except SessionNotFoundError:
        return given


def _newest_call(audit: SessionAudit, session_id: str) -> str:
    calls = [entry.id for entry in audit.timeline(session_id).entries if entry.kind == "call"]
    if not calls:
        raise NothingRecordedError(f"Session {session_id!r} holds no recorded call.")
    return calls[-1]


def _newest_summary(audit: SessionAudit, session_id: str) -> str:
    """A later compaction may have pinned or kept it, so what wrote it tells, not how it stands."""
    entries = audit.view_at(session_id).entries
    found = [entry.event for entry in entries if entry.event.synthetic]
    if not found:
        raise NothingRecordedError(f"No summary is in the view of session {session_id!r}.")
    return max(found, key=lambda event: event.version).id


def _moment(text: str) -> Moment:
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    return time_of(text) or text


def _width() -> int:
    out = console()
    return out.width if out.is_terminal else _WIDE


def _about(found: ToldBody) -> str:
    about = [f"version {found.version}", f"view {found.view_version}", f"attempt {found.attempt}"]
    about += [one_line(text) for text in (found.model, found.renderer) if text]
    about.append(f"{len(found.body):,} bytes, proven by their hash")
    if not found.is_answered:
        about.append("no answer is recorded: it may not have been sent")
    if not found.is_exact:
        about.append("recorded as a mapping: canonical JSON of what was sent")
    return " · ".join(about)


def _readable(body: bytes) -> str:
    try:
        return json.dumps(json.loads(body), ensure_ascii=False, indent=2)
    except ValueError:
        return visible(body.decode("utf-8", "backslashreplace"))


def _print_ref(mark: str, ref: EventRef, style: str, why: str) -> None:
    text = one_line_of(f"{mark} {ref.version:>6}  {ref.excerpt}", _width() - len(why))
    console().print(Text.assemble((text, style), (why, "dim")), soft_wrap=True)


def _by(boundary: BoundaryRef | None) -> str:
    return "" if boundary is None else f"  (boundary {boundary.version})"


def _boundary(ref: BoundaryRef) -> str:
    why = " when ".join(one_line(rule) for rule in (ref.strategy, ref.trigger) if rule)
    return (
        f"boundary {ref.version}, {ref.time:%Y-%m-%d %H:%M:%S} UTC: {ref.covered:,} left the view"
        f"{f' ({why})' if why else ''}"
    )


def _print_lineage(found: Lineage, depth: int) -> None:
    out = console()
    indent = "  " * depth
    out.print(Text(f"{indent}{_boundary(found.boundary)}", "bold"), soft_wrap=True)
    prompt = f"prompt {found.prompt_sha256[:12]}" if found.prompt_sha256 else None
    written = [found.summarizer, found.model, prompt]
    if any(written):
        out.print(Text(f"{indent}written by {one_line(' · '.join(filter(None, written)))}", "dim"))
    for ref in found.summary:
        out.print(Text(one_line_of(f"{indent}= {ref.version:>6}  {ref.excerpt}", _width()), "cyan"))
    for ref in found.covered:
        out.print(Text(one_line_of(f"{indent}· {ref.version:>6}  {ref.excerpt}", _width())))
    for earlier in found.through:
        _print_lineage(earlier, depth + 1)


def _timeline_table(found: Timeline, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("VERSION", justify="right", no_wrap=True)
    table.add_column("TIME", no_wrap=True)
    table.add_column("STEP", no_wrap=True)
    table.add_column("MSGS", justify="right", no_wrap=True)
    table.add_column("TOKENS", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    styles = {"turn": "cyan", "call": "green", "boundary": "bold magenta"}
    day = None
    for entry in found.entries:
        if entry.time.date() != day:
            day = entry.time.date()
            table.add_row("", "", "", "", "", Text(f"── {day} UTC", "dim"))
        table.add_row(
            f"{entry.version:,}",
            f"{entry.time:%H:%M:%S}",
            Text(entry.kind, styles.get(entry.kind, "")),
            f"{entry.messages:,}",
            f"{entry.tokens:,}",
            Text(one_line_of(_step(entry), max(20, width - 45))),
        )
    return table


def _step(entry: TimelineEntry) -> str:
    if entry.call is None:
        return entry.label
    call = entry.call
    told = [entry.id]
    if call.input_tokens is not None or call.output_tokens is not None:
        told.append(used(call.input_tokens, call.output_tokens))
    if (call.finish_reason, call.input_tokens, call.latency_ms) == (None, None, None):
        told.append("no answer recorded")
    if call.finish_reason and call.finish_reason != "stop":
        told.append(call.finish_reason)
    if call.attempts > 1:
        told.append(f"{call.attempts} attempts")
    if call.cost is not None:
        told.append(f"{call.cost} {call.currency}")
    if call.model is not None:
        told.append(call.model)
    return " · ".join(told)


def _totals(found: Timeline) -> list[str]:
    counts = ((found.turns, "turn"), (found.calls, "recorded call"), (found.boundaries, "compaction"))
    lines = [", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts)]
    if found.calls:
        costs = "".join(f", {cost} {currency}" for currency, cost in found.costs.items())
        used = f"{found.input_tokens:,} tokens in, {found.output_tokens:,} out{costs}"
        lines.append(f"{used} in recorded calls; what summaries used is not among them")
    lines.append("MSGS and TOKENS are those of the view behind the step; tokens are estimates.")
    return lines


def _findings_table(findings: tuple[Finding, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("SESSION", overflow="fold")
    table.add_column("VERSION", justify="right", no_wrap=True)
    table.add_column("FOUND", no_wrap=True)
    table.add_column("", overflow="fold")
    for finding in findings:
        version = "" if finding.version is None else f"{finding.version:,}"
        name = finding.session_id or finding.aggregate_id or "?"
        table.add_row(Text(visible(name), "cyan"), version, Text(finding.kind.value, "red"), finding.detail)
    return table


def signer_of(path: Path) -> HeadSigner:
    """The signer of a private key in a file; a file that does not exist is made."""
    try:
        from turnlog.infrastructure.signing import Ed25519Signer, new_key_file
    except ModuleNotFoundError as error:
        raise MissingExtraError("sign") from error
    if not path.exists():
        note(f"a new private key is in {path}; its public key is {new_key_file(path)}")
    return Ed25519Signer.of_file(path)


def _verifier(key: str) -> HeadVerifier:
    try:
        from turnlog.infrastructure.signing import Ed25519Verifier
    except ModuleNotFoundError as error:
        raise MissingExtraError("sign") from error
    return Ed25519Verifier(key)
