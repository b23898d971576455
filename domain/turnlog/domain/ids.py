"""Ids of sessions, events and branches: what is allowed, and how the service makes its own."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from uuid import UUID, uuid5

from turnlog.domain.errors import InvalidIdError

MAX_ID_LENGTH = 200
"""Characters of a session id or an event id."""

_NAMESPACE = UUID("5b1f3f0e-6c0f-4a57-9d3e-2f6f4b6f7a11")
"""The uuid5 namespace of turnlog's aggregates. It is storage: it never changes."""

_OWN_EVENT_ID = re.compile(r"(0|[1-9][0-9]{0,17})-[0-9a-f]{20}")


def check_id(kind: str, value: object) -> str:
    """The id itself, or `InvalidIdError`. Ids are kept and compared exactly as they are."""
    if not isinstance(value, str):
        raise InvalidIdError(kind, value, f"it must be text{_hint(value)}")
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidIdError(kind, value, f"it must have 1 to {MAX_ID_LENGTH} characters")
    if "\0" in value or not is_utf8(value):
        raise InvalidIdError(kind, value, "it must hold no NUL and no lone surrogate")
    return value


def _hint(value: object) -> str:
    """What was probably meant by something else than text."""
    if not isinstance(value, type) and isinstance(getattr(value, "id", None), str):
        return ": give its `.id`"
    return ", as `str(…)` of it is" if isinstance(value, (int, UUID)) and not isinstance(value, bool) else ""


def check_branch(value: object) -> str:
    """The branch itself, or `InvalidIdError`: names parted by dots, none of them empty."""
    branch = check_id("Branch", value)
    if not all(branch.split(".")):
        raise InvalidIdError("Branch", value, "its names are parted by single dots and none is empty")
    return branch


def is_ancestor(ancestor: str | None, branch: str | None) -> bool:
    """Whether `branch` sees what happens on `ancestor`: its own, or of a branch above it."""
    if ancestor is None or ancestor == branch:
        return True
    return branch is not None and branch.startswith(ancestor + ".")


@lru_cache(maxsize=4096)
def aggregate_id(session_id: str, namespace: str = "") -> UUID:
    """The id of the session's aggregate: the same for the same session id in the same namespace."""
    name = json.dumps([namespace, session_id], separators=(",", ":"))
    return uuid5(_NAMESPACE, name)


def entry_id(aggregate: UUID, event_id: str) -> UUID:
    """The id of the aggregate that says, in a store without rows of ours, at which version an event is."""
    return uuid5(aggregate, event_id)


def own_event_id(version: int, random_hex: str) -> str:
    """The id that the service gives to an event at this version; `random_hex` has 80 bits."""
    return f"{version}-{random_hex}"


def own_event_id_version(event_id: str) -> int | None:
    """The version that an id in the form of the service's own names, None for any other id."""
    return int(event_id.partition("-")[0]) if _OWN_EVENT_ID.fullmatch(event_id) else None


def is_utf8(text: str) -> bool:
    """Whether the text has a UTF-8 form, that is, no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
