"""What a command says of a log that is not all that was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnlog.application.audit import LostEvents
from turnlog.infrastructure.cli.output import note, one_line, several

NAMED: Final = 3
"""Runs of lost events, or sessions, that notes name."""


def note_lost(session_id: str, lost: Sequence[LostEvents]) -> None:
    """Say on stderr which events are gone, if there are any."""
    if lost:
        named = ", ".join(map(str, lost[:NAMED]))
        more = f", and {several(len(lost) - NAMED, 'further gap')}" if lost[NAMED:] else ""
        note(f"the log of {one_line(session_id)} is not whole: {named}{more}. See what `turnlog check` says.")
