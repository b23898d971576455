"""Ids of events that are made from an idempotency key."""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID, uuid5

_TURNS: Final = UUID("0b7a3f52-6d0c-4a86-9f39-1d2c5e4b8a70")
"""The uuid5 namespace of these ids. It is storage: it never changes."""


def id_in_turn(session_id: str, key: str, place: int | str) -> str:
    """The id of what stands at this place of the turn that the caller named by the key.

    It depends on nothing that a provider chose and on no text: providers use ids of calls again, and people
    say the same thing twice.
    """
    return str(uuid5(_TURNS, json.dumps([session_id, key, place], separators=(",", ":"))))
