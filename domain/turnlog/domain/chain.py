"""The hash chain over the stored events of a session.

This is a storage format: it never changes. Every value is lower-case hex, compared as text.

    salt        16 random bytes
    commitment  SHA-256 over: the salt (as hex), LF, the content (UTF-8)
    chain       SHA-256 over these lines, each ended by LF, in UTF-8:
                turnlog/1
                the chain value of the event before (64 zeros in front of version 0)
                aggregate id (32 hex digits)
                version
                TOPIC
                timestamp in UTC, as isoformat() gives it
                name=length:value for each further field that is set, by name: text as it is, integers in
                  decimal, lists as compact ASCII JSON; length in characters
                the commitment, or an empty line
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from os import urandom

GENESIS = "0" * 64
"""Stands in for the chain value in front of version 0."""

_NO_FIELDS = frozenset(
    (
        "originator_id",
        "originator_version",
        "timestamp",
        "content",
        "salt",
        "commitment",
        "chain",
    )
)


def new_salt() -> str:
    """16 fresh random bytes, as hex."""
    return urandom(16).hex()


def new_nonce() -> str:
    """8 fresh random bytes, as hex."""
    return urandom(8).hex()


def commitment(salt: str, content: str) -> str:
    """What the chain holds instead of the content."""
    return sha256(f"{salt}\n{content}".encode()).hexdigest()


def chain_value(
    previous: str,
    aggregate_hex: str,
    version: int,
    topic: str,
    timestamp: datetime,
    fields: Mapping[str, object],
    committed: str,
) -> str:
    """The chain value of an event; `fields` are its attributes, those with a place of their own included."""
    lines = [
        "turnlog/1",
        previous,
        aggregate_hex,
        str(version),
        topic,
        timestamp.astimezone(UTC).isoformat(),
    ]
    for name in sorted(fields):
        if name not in _NO_FIELDS and (value := fields[name]) is not None:
            text = _text(value)
            lines.append(f"{name}={len(text)}:{text}")
    lines += (committed, "")
    return sha256("\n".join(lines).encode()).hexdigest()


def _text(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # as it is stored: a member of an enumeration as its value
    if isinstance(value, int):
        return str(int(value))
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
