"""Log entries from the plain data of the conformance cases, as their README describes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.log import CompactionBoundary, EventType, SessionEvent
from turnlog.domain.messages import Message, Part, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from turnlog.domain.rendering import event_text
from turnlog.domain.view import replay

Data: TypeAlias = Mapping[str, Any]
"""An object of a case file."""

MESSAGE_FIELDS = frozenset(("role", "text", "tool_calls", "tool_responses", "media"))
EVENT_FIELDS = MESSAGE_FIELDS | {
    "id",
    "kind",
    "synthetic",
    "branch",
    "archived",
    "timestamp",
    "tokens",
    "pinned",
    "summary",
    "preserved",
    "payload",
}

_BEGIN = datetime(2031, 3, 1, 8, tzinfo=UTC)


def only(data: Data, names: Collection[str]) -> Data:
    """The data itself; fails when it has a field of another name, which would go unnoticed."""
    unknown = sorted(data.keys() - set(names))
    assert not unknown, f"{', '.join(unknown)} in {dict(data)} is not read by these tests"
    return data


def message_of(data: Data) -> Message:
    """The message that the data describes; fields of the event around it are left out."""
    parts: list[Part] = []
    if data.get("text") is not None:
        parts.append(TextPart(content=data["text"]))
    for medium in data.get("media", ()):
        only(medium, ("mime_type", "uri"))
        modality = medium["mime_type"].partition("/")[0]
        parts.append(UriPart(modality=modality, mime_type=medium["mime_type"], uri=medium["uri"]))
    for call in data.get("tool_calls", ()):
        only(call, ("id", "name", "arguments"))
        parts.append(ToolCallPart(id=call["id"], name=call["name"], arguments=call["arguments"]))
    for response in data.get("tool_responses", ()):
        only(response, ("id", "name", "data"))
        parts.append(
            ToolCallResponsePart(id=response["id"], name=response["name"], response=response["data"])
        )
    return Message.of(data["role"], parts)


def event_of(data: Data, version: int = 1) -> SessionEvent:
    """The entry that the data describes, at this version of its log."""
    kind = data["kind"]
    boundary = None
    if kind == "compaction":
        boundary = CompactionBoundary(tuple(data["pinned"]), tuple(data["summary"]), tuple(data["preserved"]))
    own = {"message": EventType.MESSAGE, "compaction": EventType.COMPACTION}
    is_custom = kind not in own
    return SessionEvent(
        id=data.get("id", f"e{version}"),
        type=own[kind] if not is_custom else EventType.of(kind),
        version=version,
        timestamp=_instant(data, version),
        branch=data.get("branch"),
        synthetic=data.get("synthetic", False),
        message=message_of(data) if kind == "message" else None,
        payload=data.get("payload", {}) if is_custom else None,
        boundary=boundary,
        archived=data.get("archived", False),
    )


def log_of(data: Iterable[Data], *, first_version: int = 1) -> tuple[SessionEvent, ...]:
    """The log that the data describes, in order."""
    return tuple(event_of(one, version) for version, one in enumerate(data, first_version))


class ListedTokens:
    """An estimator that looks up what the cases say a message costs, by its one-line rendering."""

    def __init__(self, events: Iterable[Data]) -> None:
        self._costs: dict[str, int] = {}
        for data in events:
            if data.get("kind", "message") == "message":
                rendering, cost = event_text(message_of(data)), data.get("tokens", 0)
                assert self._costs.setdefault(rendering, cost) == cost, f"{rendering!r} has two costs"

    def estimate(self, message: Message) -> int:
        """The cost in the case, 0 for what the case gives none."""
        return self._costs.get(event_text(message), 0)

    def of_event(self, event: SessionEvent) -> int:
        """The cost of the event's message."""
        return self.estimate(event.message) if event.message else 0


def pass_of(log: Sequence[SessionEvent], at: int) -> tuple[CompactionResult, Sequence[SessionEvent]] | None:
    """The pass that wrote the boundary at this index, and its summary events.

    None when no pass can have written it: it names what was not in the view, or its summary is not right
    behind it. Such logs come from elsewhere and exist as arguments of `project` only.
    """
    boundary = log[at].boundary
    assert boundary is not None
    view = replay(log[:at]).events
    held = {event.id: event for event in view}
    summary = log[at + 1 : at + 1 + len(boundary.summary)]
    kept = (*boundary.pinned, *boundary.preserved)
    if tuple(event.id for event in summary) != boundary.summary or not held.keys() >= set(kept):
        return None
    if not all(event.synthetic for event in summary):
        return None
    result = CompactionResult(
        CompactionReason.COMPACTED,
        covered_events=tuple(event for event in view if event.id not in kept),
        pinned_events=tuple(held[name] for name in boundary.pinned),
        preserved_events=tuple(held[name] for name in boundary.preserved),
        summary=tuple(event.message for event in summary if event.message),
    )
    return result, summary


def is_of_the_service(log: Sequence[SessionEvent]) -> bool:
    """Whether a session of the service can hold this log: every boundary of it is one that a pass writes."""
    return all(pass_of(log, at) is not None for at, event in enumerate(log) if event.boundary)


def _instant(data: Data, version: int) -> datetime:
    given = data.get("timestamp")
    return datetime.fromisoformat(given) if given else _BEGIN + timedelta(seconds=version)
