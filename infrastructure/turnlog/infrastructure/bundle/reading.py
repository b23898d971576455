"""Checking a bundle, and bringing its session into a store."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eventsourcing.utils import Environment, EnvType

from turnlog.application import AnySessionService, Sessions, SessionService
from turnlog.application.audit import SessionAudit
from turnlog.domain.errors import SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.events import StreamEvent
from turnlog.infrastructure.bundle import verify
from turnlog.infrastructure.bundle.errors import (
    ForgedBundleError,
    InvalidKeyError,
    UnreadableBundleError,
    UnsignedBundleError,
)
from turnlog.infrastructure.bundle.lines import event_of

_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class CheckedBundle:
    """A bundle that is as it was exported. `notes` say what it does not prove.

    `is_repeat` says that its events were here already when it was imported.
    """

    session_id: str
    namespace: str
    events: int
    version: int
    head: str
    boundaries: int
    prompts: int
    view: tuple[str, ...]
    notes: tuple[str, ...]
    is_repeat: bool = False


class _Rehearsal(Sessions):
    """A store in memory, whatever the environment of the process says."""

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:  # noqa: ARG002 - of no use
        """No variables at all."""
        return Environment(name)


def is_bundle(path: Path) -> bool:
    """Whether the file is a zip, as bundles are and no other file that can be imported."""
    with path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP


def check_bundle(path: str | Path, *, key: str | None = None) -> CheckedBundle:
    """Check a bundle as its own verifier does; with a `key` (hex) its heads must be signed by it.

    Raises `UnreadableBundleError` and `ForgedBundleError`, which say what is known, with a `key`
    `UnsignedBundleError` for a bundle that is whole and not signed and `InvalidKeyError`, and `OSError`.
    """
    path = Path(path)
    return _checked(path, path.read_bytes(), key)


def import_bundle(service: AnySessionService, path: str | Path, *, key: str | None = None) -> CheckedBundle:
    """Check a bundle, then write its session as it was: the same versions, chain values and views.

    The session is replayed in memory first, and every state that its events carry is compared. When the
    session is here already and has these events, nothing is written (`is_repeat`).

    Raises what `check_bundle` raises, `SessionIdUnavailableError` when the id is or was used here by other
    events, and `ForeignEvidenceError` for a session of another namespace or principal. Then nothing was
    written.
    """
    path = Path(path)
    data = path.read_bytes()
    bundle = _checked(path, data, key)
    events = _events(bundle, verify.read_zip(data)[verify.EVENTS])
    _rehearse(path, bundle, events)
    try:
        SessionAudit(service).restore(events)
    except SessionIdUnavailableError:
        if not _is_here(service, bundle):
            raise
        return replace(bundle, is_repeat=True)
    return bundle


def _is_here(service: AnySessionService, bundle: CheckedBundle) -> bool:
    """Whether the session here has the events of the bundle: their newest chain value stands for all."""
    try:
        session = SessionAudit(service).stored(bundle.session_id)
    except SessionNotFoundError:
        return False
    return any(event.chain == bundle.head for event in session.events)


def _checked(path: Path, data: bytes, key: str | None) -> CheckedBundle:
    if key is not None and not verify.is_key(key):
        raise InvalidKeyError(key)
    try:
        report = verify.check(data, key)
    except verify.NoBundleError as error:
        raise UnreadableBundleError(path, str(error)) from error
    manifest: dict[str, Any] = report.manifest
    if report.findings:
        session_id = manifest.get("session")
        known = session_id if isinstance(session_id, str) else None
        if report.lacks_signature and len(report.findings) == 1:
            raise UnsignedBundleError(path, known)
        raise ForgedBundleError(path, known, report.findings)
    return CheckedBundle(
        session_id=manifest["session"],
        namespace=manifest["namespace"],
        events=manifest["events"],
        version=manifest["version"],
        head=manifest["head"],
        boundaries=manifest["boundaries"],
        prompts=manifest["prompts"],
        view=tuple(manifest["view"]),
        notes=tuple(report.notes),
    )


def _events(bundle: CheckedBundle, lines: bytes) -> list[StreamEvent]:
    return [event_of(json.loads(line), bundle.session_id, bundle.namespace) for line in lines.splitlines()]


def _rehearse(path: Path, bundle: CheckedBundle, events: list[StreamEvent]) -> None:
    """Write the events into a store in memory, and verify them there with all that turnlog knows."""
    with SessionService(_Rehearsal(), namespace=bundle.namespace) as service:
        audit = SessionAudit(service)
        try:
            audit.restore(events)
        except Exception as error:  # the states do not follow on one another
            raise ForgedBundleError(
                path, bundle.session_id, [f"its events cannot be replayed: {error}"]
            ) from error
        found = audit.verify(bundle.session_id).findings
    if found:
        findings = [f"event {finding.version}: {finding.detail}" for finding in found]
        raise ForgedBundleError(path, bundle.session_id, findings)
