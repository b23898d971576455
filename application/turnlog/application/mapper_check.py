"""Whether an application's mapper gives back our events as they were."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from eventsourcing.persistence import Mapper

from turnlog.domain.errors import UnsuitableMapperError
from turnlog.domain.events import (
    CallAbandoned,
    Compacted,
    ContentRedacted,
    EventAppended,
    EventErased,
    EventIdTaken,
    ExpiryMoved,
    HoldPlaced,
    HoldReleased,
    MessageAppended,
    MetadataUpdated,
    SessionDeleted,
    SessionOpened,
    TurnMarked,
)

_ID = UUID(int=1)
_TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_TEXT = '{"_type_":"x","_data_":"NUL \\u0000, ≠, 漢字, 🙂"}'


def samples() -> list[Any]:
    """One event of each stored class with every field set: microseconds, NUL, text in many scripts."""
    base: dict[str, Any] = {"originator_id": _ID, "originator_version": 3, "timestamp": _TIME}
    link: dict[str, Any] = {
        **base,
        "chain": "0" * 64,
        "state": "1-3;0;;;",
        "anchor": 2,
        "context": _TEXT,
        "nonce": "0",
    }
    content: dict[str, Any] = {**link, "content": _TEXT, "salt": "f" * 32, "commitment": "e" * 64}
    ids = ["漢", "1-x", "🙂"]
    return [
        SessionOpened(**content, session_id="é", namespace="n", expires_at=_TIME.isoformat(), idle=10**12),
        MessageAppended(
            **content,
            event_id="é",
            role="user",
            branch="a.b",
            synthetic=1,
            occurred_at=_TIME.isoformat(),
            opens=ids,
            closes=ids,
            hides=ids,
        ),
        EventAppended(**content, event_id="é", type="A.B", branch="a", occurred_at=_TIME.isoformat()),
        Compacted(
            **link,
            event_id="é",
            pinned=ids,
            summary=ids,
            preserved=ids,
            branch="a",
            covered_count=7,
            tokens_saved=10**9,
            strategy="é",
            trigger="é",
            occurred_at=_TIME.isoformat(),
        ),
        CallAbandoned(
            **link,
            event_id="é",
            call_event_id="é",
            call_version=2,
            call_id="é",
            occurred_at=_TIME.isoformat(),
        ),
        MetadataUpdated(**content),
        ExpiryMoved(**link, expires_at=_TIME.isoformat()),
        HoldPlaced(**link, reason="é", by="漢"),
        HoldReleased(**link, placed_at=2, by="漢"),
        ContentRedacted(
            **content,
            event_id="é",
            redacted_version=2,
            commitment_kept="c" * 64,
            reason="漢",
            by="é",
            redacted_id="🙂",
            form=_TEXT,
            through=1,
        ),
        TurnMarked(**link, turn_id="漢", branch="a", until=_TIME.isoformat()),
        SessionDeleted(**link, keeps_content=1, previous="d" * 64),
        EventErased(**base),
        EventIdTaken(**base, version=9),
    ]


def check_mapper(mapper: Mapper[Any]) -> None:
    """Send the samples through the mapper; `UnsuitableMapperError` when one does not come back as it was."""
    for sample in samples():
        try:
            back = mapper.to_domain_event(mapper.to_stored_event(sample))
        except Exception as error:
            raise UnsuitableMapperError(
                f"The application's mapper cannot store {type(sample).__name__}: {error}. "
                "Check MAPPER_TOPIC and TRANSCODER_TOPIC: text, integers, lists of text, UUIDs and datetimes "
                "must be kept."
            ) from error
        if type(back) is not type(sample) or vars(back) != vars(sample):
            raise UnsuitableMapperError(
                f"The application's mapper does not give back {type(sample).__name__} as it was. "
                "Check MAPPER_TOPIC and TRANSCODER_TOPIC: text, integers, lists of text, UUIDs and datetimes "
                "must be kept."
            )
