"""What is wrong with a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnlog.domain.errors import TurnlogError, shown

_NAMED = 3
"""Findings that a message names."""


class BundleError(TurnlogError):
    """A bundle cannot be relied on. Nothing of it was imported."""


class UnreadableBundleError(BundleError):
    """The file is no bundle: it is cut off, damaged, or something else."""

    def __init__(self, path: Path | None, reason: str) -> None:
        name = "The bundle" if path is None else f"{path}"
        super().__init__(f"{name} cannot be read as an evidence bundle: {reason}. Get the file once more.")
        self.path = path
        self.reason = reason


class UnsignedBundleError(BundleError):
    """The bundle is whole, and a key was named that should have signed it: nothing in it is signed."""

    def __init__(self, path: Path, session_id: str | None) -> None:
        super().__init__(
            f"{path} is not signed, so nobody can tell whose it is; its events follow on each other. Ask for "
            "a bundle that was exported with --sign, or check it without a key."
        )
        self.path = path
        self.session_id = session_id


class InvalidKeyError(BundleError):
    """What was given as a public key is none."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{shown(key)} is no public key: that has 64 hex digits, as `--sign` printed them.")


class ForgedBundleError(BundleError):
    """The bundle is not as it was exported. `session_id` is the session that it says it holds.

    Without a `path` it was to be exported, and the log of the session is not as it was recorded.
    """

    def __init__(self, path: Path | None, session_id: str | None, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        named = "; ".join(self.findings[:_NAMED])
        more = f"; and {len(self.findings) - _NAMED:,} more" if len(self.findings) > _NAMED else ""
        if path is None:
            name, recorded = f"The log of session {shown(session_id)}", "recorded"
            advice = "Nothing was exported: see what `turnlog check` says, and put it back from a backup."
        else:
            name, recorded = f"{path}", "exported"
            advice = "Do not rely on it: get it from its source anew."
        super().__init__(f"{name} is not as it was {recorded}: {named}{more}. {advice}")
        self.path = path
        self.session_id = session_id
