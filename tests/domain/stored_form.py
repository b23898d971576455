"""The chain computed again from the stored form of a stream, as the design describes it.

It shares nothing with the library: no code, no transcoder, no event classes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_BESIDE_THE_FIELDS = {"timestamp", "content", "salt", "commitment", "chain"}


def chain_of(previous: str, aggregate_hex: str, version: int, topic: str, state: Mapping[str, Any]) -> str:
    """The chain value that a stored event must have behind `previous`."""
    lines = ["turnlog/1", previous, aggregate_hex, str(version), topic, state["timestamp"]["_data_"]]
    for name in sorted(state.keys() - _BESIDE_THE_FIELDS):
        value = state[name]
        if value is None:
            continue
        if isinstance(value, list):
            value = json.dumps(value, separators=(",", ":"))
        text = str(value)
        lines.append(f"{name}={len(text)}:{text}")
    lines.append(_commitment(state))
    return hashlib.sha256("".join(line + "\n" for line in lines).encode("utf-8")).hexdigest()


def broken_links(aggregate_hex: str, stream: Iterable[tuple[int, str, Mapping[str, Any]]]) -> list[int]:
    """The versions of (version, topic, state) whose stored chain value is not the one that it must be."""
    broken: list[int] = []
    previous = "0" * 64
    for version, topic, state in stream:
        if state["chain"] != chain_of(previous, aggregate_hex, version, topic, state):
            broken.append(version)
        previous = state["chain"]
    return broken


def _commitment(state: Mapping[str, Any]) -> str:
    if "content" not in state:
        return str(state.get("commitment", ""))
    salted = state["salt"].encode() + b"\n" + state["content"].encode("utf-8")
    return hashlib.sha256(salted).hexdigest()
