"""The commands about evidence bundles: audit export, audit check, and import of a bundle."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from turnlog.application.audit import Heads
from turnlog.infrastructure.bundle import CheckedBundle, check_bundle, export_bundle, import_bundle
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.auditing import signer_of
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.output import console, note, one_line, several, visible, write_json
from turnlog.infrastructure.cli.outputs import STDOUT, require_apart, require_output
from turnlog.infrastructure.cli.settings import Settings, Status


def export_session(
    settings: Settings,
    given: str,
    *,
    output: Path,
    sign: Path | None,
    heads: Path | None,
    bodies: bool,
    force: bool = False,
) -> int:
    """Write the bundle of a session."""
    if output == STDOUT:
        raise CommandUsageError(
            "A bundle is a file of bytes, not a text to print: name a file with --output."
        )
    require_output(settings, output, force=force, inputs=[sign, heads])
    if sign is not None:
        require_apart(settings, sign)
    if sign is not None and heads is not None:
        raise CommandUsageError("--sign makes new heads and --heads takes former ones: give one of them.")
    former = None if heads is None else Heads.of_json(heads.read_bytes())
    signer = None if sign is None else signer_of(sign)
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        written = export_bundle(
            service, session_id, output, signer=signer, heads=former, bodies=bodies, replace=force
        )
    if settings.json:
        write_json({"file": str(output), **asdict(written)})
        return Status.DONE
    out = console()
    out.print(
        f"{several(written.events, 'event')} of {one_line(session_id)} in {visible(str(output))} "
        f"({written.size:,} bytes): {several(written.boundaries, 'compaction')}, "
        f"{several(written.prompts, 'recorded request')}",
        soft_wrap=True,
    )
    if bodies and written.without_body:
        missing = several(written.without_body, "request")
        note(f"{missing} without a body in it; prompts.jsonl says why")
    out.print(f"head {written.head}", style="dim", soft_wrap=True)
    if written.key:
        out.print(f"signed by key {written.key}", style="dim", soft_wrap=True)
    return Status.DONE


def check_file(settings: Settings, bundle: Path, key: str | None) -> int:
    """Say what a bundle holds, when it is as it was exported."""
    found = check_bundle(bundle, key=key)
    if settings.json:
        write_json(asdict(found))
        return Status.DONE
    out = console()
    out.print(f"Session {one_line(found.session_id)}: {_figures(found)}", soft_wrap=True)
    out.print("The bundle is as it was exported: every event follows on the one in front of it.")
    out.print(f"head {found.head}", style="dim", soft_wrap=True)
    for line in found.notes:
        note(line)
    return Status.DONE


def import_bundles(settings: Settings, paths: list[Path]) -> int:
    """Check every bundle, then write the session of each as it was."""
    for path in paths:
        check_bundle(path)
    with database.changing(settings.database, create=True) as service:
        found = [(path, import_bundle(service, path)) for path in paths]
    if settings.json:
        write_json([{"path": str(path), "format": "bundle", **asdict(one)} for path, one in found])
        return Status.DONE
    out = console()
    for path, one in found:
        out.print(f"{visible(str(path))} (evidence bundle)", style="bold", soft_wrap=True)
        told = "was here already" if one.is_repeat else "is here as it was"
        out.print(f"  session {one_line(one.session_id)} {told}: {_figures(one)}", soft_wrap=True)
    return Status.DONE


def _figures(found: CheckedBundle) -> str:
    return (
        f"{several(found.events, 'event')}, {several(found.boundaries, 'compaction')}, "
        f"{several(found.prompts, 'recorded request')}, {several(len(found.view), 'message')} in the view"
    )
