"""Making a bundle of a session. The same session gives the same bytes, unless heads are signed for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, cast

from turnlog.application import AnySessionService
from turnlog.application.audit import Head, Heads, HeadSigner, RendererRegistry, SessionAudit
from turnlog.application.audit.evidence import StoredSession
from turnlog.application.audit.findings import joined
from turnlog.domain.errors import TurnlogError
from turnlog.domain.events import EventAppended
from turnlog.domain.json_text import from_json_text
from turnlog.domain.log import EventType
from turnlog.infrastructure.bundle import verify
from turnlog.infrastructure.bundle.errors import ForgedBundleError
from turnlog.infrastructure.bundle.lines import event_line
from turnlog.infrastructure.whole_files import FileTakenError, write_whole

VERIFIER = Path(verify.__file__)
"""The stand-alone verifier, which is part of each bundle."""

_SAID = ("call", "attempt", "view", "model", "renderer", "form")

_README = """An evidence bundle of turnlog: one conversation with a language model, as it was recorded.

manifest.json     versions, the newest chain value, counts, the ids of the view, SHA-256 of each file
events.jsonl      every stored event, in order, with its content, salt and chain value
boundaries.jsonl  what each compaction put into the view, and what left it
prompts.jsonl     the exact body of each recorded request to a model
heads.json        chain values with a signature, if there are any
verify.py         checks all of this: python verify.py bundle.zip

The verifier needs Python 3.9 or later and nothing else. Its first lines say how the chain is made and what it
proves. Take a copy of it from a source that you trust: this one was exported together with what it checks.
"""


@dataclass(frozen=True)
class WrittenBundle:
    """What was exported. `without_body` are recorded requests whose body could not be made again."""

    session_id: str
    events: int
    version: int
    head: str
    boundaries: int
    prompts: int
    without_body: int
    size: int
    key: str | None = None


def export_bundle(
    service: AnySessionService,
    session_id: str,
    path: str | Path,
    *,
    signer: HeadSigner | None = None,
    heads: Heads | None = None,
    bodies: bool = True,
    renderers: RendererRegistry | None = None,
    replace: bool = False,
) -> WrittenBundle:
    """Write a session as an evidence bundle, as a whole or not at all.

    With a `signer` the newest chain value goes with it, signed; or give `heads` that were exported earlier.
    Without `bodies` the prompts are named but not rendered; `renderers` are as
    in `SessionAudit`. The bundle is checked before it is written.

    Raises `SessionNotFoundError`, `FileTakenError` for a file that is there, unless `replace`, `OSError`, and
    `ForgedBundleError` when the log is not as it was recorded: whatever `SessionAudit.verify` finds, events
    that are gone among it.
    """
    path = Path(path)
    if path.is_file() and not replace:
        raise FileTakenError(path)
    audit = SessionAudit(service, renderers=renderers)
    session = audit.stored(session_id)
    wrong = [said for _, said in joined(audit.verify(session_id).findings)]
    if wrong:
        raise ForgedBundleError(None, session_id, wrong)
    newest = session.events[-1]
    if signer is not None:
        head = Head(session.aggregate_id, newest.originator_version, newest.chain)
        heads = Heads(datetime.now(UTC), (head,)).signed(signer)
    prompts = [_prompt(audit, session_id, event, bodies=bodies) for event in _prompts(session)]
    files = _files(session, prompts, heads)
    data = verify.write_zip(files)
    report = verify.check(data)
    if report.findings:
        raise ForgedBundleError(None, session_id, report.findings)
    write_whole([(path, [data])], replace=replace)
    return WrittenBundle(
        session_id=session_id,
        events=len(session.events),
        version=newest.originator_version,
        head=newest.chain,
        boundaries=report.manifest["boundaries"],
        prompts=len(prompts),
        without_body=sum("missing" in prompt for prompt in prompts),
        size=len(data),
        key=None if heads is None else heads.key,
    )


def _files(
    session: StoredSession, prompts: Sequence[Mapping[str, Any]], heads: Heads | None
) -> dict[str, bytes]:
    events = [event_line(event) for event in session.events]
    boundaries, view = verify.fold(events, verify.Report())
    files = {
        verify.EVENTS: _lines(events),
        verify.BOUNDARIES: _lines(boundaries),
        verify.PROMPTS: _lines(prompts),
        verify.README: _README.encode(),
        VERIFIER.name: VERIFIER.read_bytes(),
    }
    if heads is not None:
        files[verify.HEADS] = heads.to_json().encode()
    manifest = {
        "format": verify.FORMAT,
        "turnlog": installed_version("turnlog"),
        "session": session.session_id,
        "namespace": session.namespace,
        "aggregate": session.aggregate_id.hex,
        "events": len(events),
        "version": session.events[-1].originator_version,
        "head": session.events[-1].chain,
        "boundaries": len(boundaries),
        "prompts": len(prompts),
        "view": view,
        "files": {name: {"bytes": len(data), "sha256": verify.sha256(data)} for name, data in files.items()},
    }
    files[verify.MANIFEST] = verify.manifest_text(manifest)
    return files


def _lines(records: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(verify.line_of(record) + "\n" for record in records).encode()


def _prompts(session: StoredSession) -> Iterator[EventAppended]:
    for event in session.events:
        if isinstance(event, EventAppended) and event.type == EventType.PROMPT_RENDERED:
            yield event


def _prompt(audit: SessionAudit, session_id: str, event: EventAppended, *, bodies: bool) -> dict[str, Any]:
    """The line of a recorded request."""
    line: dict[str, Any] = {
        "version": event.originator_version,
        "id": event.event_id,
        "time": event.timestamp.isoformat(),
    }
    if event.content is None or event.commitment is not None:
        return {**line, "missing": "it was redacted"}
    payload = cast("dict[str, Any]", from_json_text(event.content))
    line.update({name: payload[name] for name in _SAID if name in payload})
    if not bodies:
        return {**line, "missing": "bodies were left out of this bundle"}
    try:
        body = audit.told(session_id, str(payload["call"]), attempt=int(payload["attempt"])).body
    except TurnlogError as error:  # redacted, or its renderer is not installed
        return {**line, "missing": f"{type(error).__name__}: {error}"}
    try:
        return {**line, "text": body.decode()}
    except UnicodeDecodeError:
        return {**line, "base64": b64encode(body).decode()}
