"""Where else in the log a redacted content stands: prompts that told it, summaries that carry it on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from turnlog.application.audit.telling import Telling
from turnlog.application.audit.tracing import Tracing
from turnlog.application.spread import Gap, Spread
from turnlog.application.stored_events import entry_in
from turnlog.application.writing import SessionKey
from turnlog.domain.entries import mark_of
from turnlog.domain.events import ContentEvent, ContentRedacted, MetadataUpdated, SessionOpened, StreamEvent
from turnlog.domain.json_text import from_json_text, to_json_text
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message, Part
from turnlog.domain.redaction import redacted_text

_SEAL: Final = ("salt", "digest", "bytes")
"""What would let a body be found by trying."""

_FIGURES: Final = ("call", "attempt", "view", "branch", "model", "renderer", "stream")
"""What stays of a prompt for good: no content."""

_CERTAIN: Final = 8
"""Characters from which on a text that contains another one surely quotes it."""

_OF_PROMPTS: Final = (EventType.PROMPT_RENDERED, EventType.PROMPT_CONTENT)


@dataclass(frozen=True)
class _Followed:
    """What is looked for in prompts: a message, the messages whose content goes now, summaries of it."""

    target: int
    removed: Mapping[int, Message | None]
    summaries: set[int]
    eraser: _Pieces


class Spreading(Telling):
    """Follows a message through the log."""

    def spread(
        self,
        key: SessionKey,
        target: SessionEvent,
        metadata_version: int | None,
        *,
        cascade: bool,
        reason: str,
    ) -> Spread:
        """Where the message went. With `cascade` what may carry it on is among the gaps as well.

        Of a message that was redacted before, nothing is among the gaps but what a cascade adds. Reads the
        log once.
        """
        spread = Spread()
        carried = Tracing.carried(self, key.session_id, target.id)
        removed: dict[int, Message | None] = {} if target.redacted else {target.version: target.message}
        summaries: set[int] = set()
        for summary in (ref for one in carried.summaries for ref in one.summary):
            event = self._streams.event_at(key.aggregate_id, summary.version)
            entry = None if event is None else entry_in(event, key.session_id)
            if event is None or entry is None or entry.redacted:
                continue
            summaries.add(entry.version)
            if cascade:
                spread.gaps.append(Gap(event))
                removed[entry.version] = entry.message
            else:
                spread.summaries.append(entry.id)
        eraser = _Pieces([message for message in removed.values() if message], redacted_text(reason))
        quoted = self._quoted(key, target)
        for event in self._streams.log(key.aggregate_id):
            if isinstance(event, (SessionOpened, MetadataUpdated)):
                self._metadata_gap(spread, event, eraser, quoted, metadata_version, cascade=cascade)
                continue
            entry = entry_in(event, key.session_id) if isinstance(event, ContentEvent) else None
            if entry is not None and entry.type in _OF_PROMPTS and entry.version > target.version:
                followed = _Followed(target.version, removed, summaries, eraser)
                self._prompt_gap(key, spread, event, entry, followed, cascade=cascade)
        return spread

    def _quoted(self, key: SessionKey, target: SessionEvent) -> set[int]:
        """The metadata that quoted a content which was removed before, as its redaction says."""
        if target.redacted is None:
            return set()
        redaction = self._streams.event_at(key.aggregate_id, target.redacted.version)
        quoted = redaction.quoted if isinstance(redaction, ContentRedacted) else None
        return set(map(int, quoted or ()))

    @staticmethod
    def _metadata_gap(
        spread: Spread,
        event: ContentEvent,
        eraser: _Pieces,
        quoted: set[int],
        in_force: int | None,
        *,
        cascade: bool,
    ) -> None:
        if event.is_redacted or event.content is None:
            return
        if event.originator_version not in quoted and not eraser.stands_in(from_json_text(event.content)):
            return
        spread.quoted.append(event.originator_version)
        if cascade and event.originator_version != in_force:
            spread.gaps.append(Gap(event))
        else:
            spread.metadata.append(event.originator_version)

    def _prompt_gap(
        self,
        key: SessionKey,
        spread: Spread,
        event: StreamEvent,
        entry: SessionEvent,
        followed: _Followed,
        *,
        cascade: bool,
    ) -> None:
        newest, payload = self._holder(key, event, entry)
        if newest is None:
            return
        eraser = followed.eraser
        if entry.type == EventType.PROMPT_CONTENT:
            if eraser.stands_in(payload):
                spread.gaps.append(Gap(newest, {}, eraser.without(payload)))
            return
        told = {one.version for one in self._conversation(key, payload) if isinstance(one, SessionEvent)}
        is_own = "literal" in payload or "patch" in payload
        own_copy = is_own and followed.target in told
        if told & followed.removed.keys() or eraser.stands_in(payload) or (cascade and own_copy):
            gone = {followed.target, *followed.removed}
            left = None if cascade and is_own else self._left(key, payload, gone, eraser)
            spread.gaps.append(Gap(newest, _figures(payload), left))
        if not cascade and (told & followed.summaries or own_copy):
            spread.prompts.append(str(payload.get("call", entry.id)))

    def _holder(
        self, key: SessionKey, event: StreamEvent, entry: SessionEvent
    ) -> tuple[StreamEvent | None, Mapping[str, Any]]:
        """The event that holds the payload now: the prompt itself, or the last of its redactions."""
        mark = entry.redacted
        if mark is None:
            return event, entry.payload or {}
        while mark is not None:
            holder = self._streams.event_at(key.aggregate_id, mark.version)
            if not isinstance(holder, ContentRedacted) or (holder.content is None):
                return None, {}
            if not holder.is_redacted:
                return holder, cast("dict[str, Any]", from_json_text(holder.content))
            mark = mark_of(holder)
        return None, {}

    def _left(
        self, key: SessionKey, payload: Mapping[str, Any], gone: Collection[int], eraser: _Pieces
    ) -> dict[str, Any]:
        """The payload without what proves the body, and without what it holds of the content by value."""
        kept = {name: value for name, value in payload.items() if name not in _SEAL}
        if "told" in kept:
            base = self._base(key, payload)
            kept["told"] = [_place(item, base, gone) for item in kept["told"]]
        if "base64" in kept.get("literal", ()):
            del kept["literal"]
        return cast("dict[str, Any]", eraser.without(kept))


def _place(item: Any, base: Sequence[SessionEvent], gone: Collection[int]) -> Any:
    """An item of a conversation; where it is a redacted message in another form, its place alone."""
    if isinstance(item, Mapping):
        place: int | None = cast("Mapping[str, Any]", item).get("of")
        if place is not None and base[place].version in gone:
            return str(place)
    return cast("object", item)


class _Pieces:
    """The texts of messages, which are looked for in what quotes them."""

    def __init__(self, messages: Sequence[Message], placeholder: str) -> None:
        texts = {text for message in messages for text in _texts(message.parts) if text.strip()}
        self._whole = frozenset(texts)
        forms = {form for text in texts if len(text) >= _CERTAIN for form in _forms(text)}
        self._long = sorted(forms, key=len, reverse=True)
        self._placeholder = placeholder

    def stands_in(self, value: Any) -> bool:
        """Whether a text in the JSON value quotes one of them."""
        return bool(self.without(value) != value)

    def without(self, value: Any) -> Any:
        """The value with a placeholder instead of what is quoted."""
        if isinstance(value, str):
            return self._cut(value)
        if isinstance(value, Mapping):
            return {name: self.without(item) for name, item in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, (list, tuple)):
            return [self.without(item) for item in cast("list[Any]", value)]
        return value

    def _cut(self, text: str) -> str:
        if text in self._whole:
            return self._placeholder
        for piece in self._long:
            if piece in text:
                text = text.replace(piece, self._placeholder)
        return text


def _forms(text: str) -> Iterator[str]:
    """The text as it is, and as it stands in JSON and in JSON within JSON."""
    yield text
    for escaped in (to_json_text(text), json.dumps(text)):
        yield escaped[1:-1]
        yield json.dumps(escaped)[3:-3]


def _texts(parts: Sequence[Part]) -> Iterator[str]:
    """What the parts say."""
    for part in parts:
        fields = vars(part)
        for name in ("content", "arguments", "response", "uri", "file_id"):
            value = fields.get(name)
            if isinstance(value, str):
                yield value
            elif isinstance(value, tuple):
                yield from _texts(cast("Sequence[Part]", value))


def _figures(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in _FIGURES if name in payload}
