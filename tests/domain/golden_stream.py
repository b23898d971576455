"""Streams with every event of a session in them; `python -m tests.domain.golden_stream` adds what is new.

What is written is the storage format as it was released. It is only ever added to: a new event class or a new
field gets a sample of its own, and a sample that is there never changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

from eventsourcing.persistence import DatetimeAsISO, JSONTranscoder, Mapper, StoredEvent, UUIDAsHex

from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.entries import entry_of
from turnlog.domain.events import (
    ContentEvent,
    ContentRedacted,
    EventErased,
    EventIdTaken,
    StreamEvent,
    as_uuid,
)
from turnlog.domain.ids import aggregate_id, entry_id
from turnlog.domain.log import EventType, NewEvent, OwnEvent, SessionEvent
from turnlog.domain.messages import Message, TextPart, ToolCallPart, ToolCallResponsePart
from turnlog.domain.session import Session

FILE = Path(__file__).parent / "golden" / "stream.json"
BEGIN = datetime(2031, 5, 1, 8, 0, 0, 123456, tzinfo=UTC)


def mapper() -> Mapper[UUID]:
    """The framework's mapper with its JSON transcoder, as an application has it."""
    transcoder = JSONTranscoder()
    transcoder.register(UUIDAsHex())
    transcoder.register(DatetimeAsISO())
    return Mapper(transcoder)


def decided() -> list[Any]:
    """The events of the stream as today's code decides them, and the ledger entry of one of them."""
    salts = (f"{number:032x}" for number in range(1, 1000))
    nonces = (f"{number:016x}" for number in range(1, 1000))
    with (
        patch("turnlog.domain.session.new_salt", lambda: next(salts)),
        patch("turnlog.domain.session.new_nonce", lambda: next(nonces)),
    ):
        return [
            *_stream(),
            _ledger_entry(),
            *_scattered(),
            *_held(),
            _erased(),
            *_marked(),
            *_redacted(),
            *_quoted(),
        ]


def stored_samples() -> list[dict[str, Any]]:
    """The samples that are committed: aggregate, version, topic and the stored text of each."""
    return cast("list[dict[str, Any]]", json.loads(FILE.read_text("utf-8")))


def sample_of(event: Any) -> dict[str, Any]:
    """The stored form of an event, as it is committed."""
    stored = mapper().to_stored_event(event)
    return {
        "aggregate": as_uuid(stored.originator_id).hex,
        "version": stored.originator_version,
        "topic": stored.topic,
        "state": stored.state.decode("utf-8"),
    }


def event_of(sample: dict[str, Any]) -> Any:
    """The event that a sample holds."""
    return mapper().to_domain_event(
        StoredEvent(
            originator_id=UUID(sample["aggregate"]),
            originator_version=sample["version"],
            topic=sample["topic"],
            state=sample["state"].encode("utf-8"),
        )
    )


def _clock() -> Iterator[datetime]:
    now = BEGIN
    while True:
        now += timedelta(seconds=61)
        yield now


def _stream() -> list[StreamEvent]:
    clock = _clock()
    session = Session.open(
        "Lund ≠ 漢字 🙂",
        now=BEGIN,
        namespace="acme",
        metadata={"title": "NUL \0, lone \ud800"},
        idle=timedelta(hours=1),
        context={"actor": "ada"},
    )

    def say(message: Message, **fields: Any) -> StreamEvent:
        event_id = f"m{session.version + 1}"
        return session.append(NewEvent(message=message, **fields), event_id=event_id, now=next(clock))

    say(Message.system("Be kind."))
    say(Message.user("Где моя посылка?", metadata={"usage": {"input_tokens": 7}}), occurred_at=BEGIN)
    say(Message.assistant([_call("c1", awaiting=True)], origin="openai.chat"))
    say(Message.assistant([_call("c1")]), branch="orch.researcher")
    say(Message.assistant([_call("c1")]))
    say(Message.tool([ToolCallResponsePart(id="c1", name="find", response="In Lund\0.")]))
    say(Message.tool([ToolCallResponsePart(id="c1", name="find", response="…", provisional=True)]))
    say(Message.tool([ToolCallResponsePart(id="c1", name="find", response="In Malmö.")]))
    note = NewEvent(
        type=EventType.of("ACME.AUDIT"), payload={"ok": True, "cost": 0.5}, branch="orch", occurred_at=BEGIN
    )
    session.append(note, event_id="x9", now=next(clock), context={"actor": "bob", "why": "audit"})
    say(Message.user("And the second one?"))
    say(Message.assistant([_call("c2", awaiting=True)]))
    session.abandon(
        event_id="b12",
        call_event_id="m11",
        call_version=11,
        call_id="c2",
        now=next(clock),
        occurred_at=BEGIN,
    )
    events = [entry for event in session.recorded if (entry := entry_of(event, "")) and entry.message]
    session.compact(
        _result(events),
        boundary_id="c13",
        summary=[
            ("su14", NewEvent(message=Message.user("What was said?"), synthetic=True)),
            ("sa15", NewEvent(message=Message.assistant("A parcel is in Malmö."), synthetic=True)),
        ],
        now=next(clock),
        branch="orch",
        strategy="window of the last 1 turns",
        trigger="more than 1 turns",
        occurred_at=BEGIN,
    )
    session.update_metadata({"title": "Malmö"}, now=next(clock))
    session.extend(BEGIN + timedelta(days=1), now=next(clock))
    session.extend(None, now=next(clock))
    session.delete(now=next(clock), context={"actor": "ada"})
    return list(session.recorded)


def _call(call_id: str, *, awaiting: bool = False) -> ToolCallPart:
    return ToolCallPart(id=call_id, name="find", arguments='{"parcel": 1}', awaiting=awaiting)


def _result(events: list[SessionEvent]) -> CompactionResult:
    """A pass that pins the system message and keeps the newest turn."""
    by_version = {event.version: event for event in events}
    return CompactionResult(
        CompactionReason.COMPACTED,
        covered_events=tuple(by_version[version] for version in range(2, 9)),
        pinned_events=(by_version[1],),
        preserved_events=(by_version[10], by_version[11]),
        tokens_estimated_saved=321,
    )


def _scattered() -> list[StreamEvent]:
    """The end of a stream whose view is in so many pieces that an event names an anchor instead."""
    clock = _clock()
    session = Session.open("scattered", now=BEGIN)
    for version in range(1, 21):
        session.append(NewEvent(message=Message.user("…")), event_id=f"m{version}", now=next(clock))
    events = [entry for event in session.recorded if (entry := entry_of(event, ""))]
    result = CompactionResult(
        CompactionReason.COMPACTED, covered_events=tuple(events[1::2]), preserved_events=tuple(events[::2])
    )
    session.compact(result, boundary_id="c21", summary=(), now=next(clock))
    session.append(NewEvent(message=Message.user("…")), event_id="m22", now=next(clock))
    return list(session.recorded[-2:])


def _held() -> list[StreamEvent]:
    """A stream under a legal hold, which ends with a deletion that keeps the content."""
    clock = _clock()
    session = Session.open("held", now=BEGIN)
    session.hold(reason="case 7", by="ada", now=next(clock))
    session.release(by="bob", now=next(clock))
    session.delete(now=next(clock), keeps_content=True)
    return list(session.recorded)


def _marked() -> list[StreamEvent]:
    """Turns that run on the root and on a branch; one is renewed, one ends."""
    clock = _clock()
    session = Session.open("marked", now=BEGIN)
    session.begin_turn("t1", until=BEGIN + timedelta(hours=1), now=next(clock))
    session.begin_turn("t2", until=BEGIN + timedelta(minutes=3), now=next(clock), branch="a;b")
    session.renew_turn("t2", until=BEGIN + timedelta(minutes=9), now=next(clock), branch="a;b")
    session.end_turn("t1", now=next(clock))
    return list(session.recorded)


def _redacted() -> list[StreamEvent]:
    """A stream with a message and a payload that were redacted, as the store has them then."""
    clock = _clock()
    session = Session.open("redacted", now=BEGIN)
    said = Message.assistant([TextPart(content="In Lund\0."), _call("c1"), _call("\ud800")])
    session.append(NewEvent(message=said), event_id="m1", now=next(clock))
    prompt = OwnEvent(type=EventType.PROMPT_RENDERED, payload={"told": ["0"], "salt": "s"})
    session.append(prompt, event_id="p2", now=next(clock))
    message, payload = session.recorded[1:]
    assert isinstance(message, ContentEvent)
    assert isinstance(payload, ContentEvent)
    told: Any = {"reason": "asked for ≠", "by": "bob"}
    left: Any = {"left": {"told": ["0"]}, "form": {"call": "c"}}
    first = session.redact(message, event_id="r3", now=next(clock), **told)
    second = session.redact(payload, event_id="r4", through=1, now=next(clock), **left, **told)
    assert isinstance(first, ContentRedacted)
    assert isinstance(second, ContentRedacted)
    opened = session.recorded[0]
    return [opened, message.redacted_by(first), payload.redacted_by(second), first, second]


def _quoted() -> list[StreamEvent]:
    """The redaction of a message that metadata quote."""
    clock = _clock()
    session = Session.open("quoted", now=BEGIN, metadata={"title": "In Lund."})
    session.append(NewEvent(message=Message.user("In Lund.")), event_id="m1", now=next(clock))
    message = session.recorded[1]
    session.redact(message, event_id="r2", quoted=[0], reason="asked", by="bob", now=next(clock))
    return [session.recorded[-1]]


def _erased() -> EventErased:
    """What the store writes over an event of a deleted session."""
    return EventErased(originator_id=aggregate_id("erased"), originator_version=3, timestamp=BEGIN)


def _ledger_entry() -> EventIdTaken:
    aggregate = aggregate_id("Lund ≠ 漢字 🙂", "acme")
    return EventIdTaken(
        originator_id=entry_id(aggregate, "m2"), originator_version=0, timestamp=BEGIN, version=2
    )


def main() -> None:
    """Add the samples that are not there yet; those that are there stay as they are."""
    kept = stored_samples() if FILE.exists() else []
    samples = [sample_of(event) for event in decided()]
    if [sample for sample in samples if sample in kept] != kept:
        raise SystemExit("A released sample is no longer written as it was: the format must not change.")
    FILE.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(sample, ensure_ascii=False) for sample in samples)
    FILE.write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
