"""What a model was told, byte for byte, from the log alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from turnlog.application.audit import bodies
from turnlog.application.audit.call_moments import CallMoments
from turnlog.application.audit.core import Moment
from turnlog.application.audit.errors import (
    AuditError,
    PromptMismatchError,
    PromptRedactedError,
    UnknownCallError,
    UnknownRendererError,
)
from turnlog.application.audit.prompts import (
    UNPROVEN,
    Told,
    base_of,
    content_id,
    conversation_of,
    filter_of,
    is_sealed,
    of_literal,
    patched,
    request_of,
)
from turnlog.application.audit.recording import Recording, attempt_id, reply_id
from turnlog.application.audit.renderers import Renderer
from turnlog.application.audit.results import Carried, CarriedPrompt, Change, Diff, EventRef
from turnlog.application.audit.tracing import Tracing
from turnlog.application.audit.views import Views
from turnlog.application.chat.model import ChatRequest
from turnlog.application.writing import SessionKey
from turnlog.domain.entries import mark_of
from turnlog.domain.errors import UnknownEventError
from turnlog.domain.events import ContentRedacted
from turnlog.domain.frozen import frozen
from turnlog.domain.json_text import from_json_text
from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.state import SessionState

_NOT_SETTINGS = frozenset(
    (
        "call",
        "attempt",
        "view",
        "told",
        "picked",
        "turn_from",
        "filter",
        "bytes",
        "salt",
        "digest",
        "patch",
        "literal",
        "form",
        "settings",
        "branch",
    )
)


@dataclass(frozen=True)
class ToldBody:
    """The body of a request. It is recorded before it leaves; `is_answered` says whether an answer is too,
    else it may not have been sent. `is_exact` is False where a mapping was recorded, not bytes.
    """

    session_id: str
    call_id: str
    attempt: int
    version: int
    view_version: int
    time: datetime
    model: str | None
    renderer: str | None
    body: bytes
    is_exact: bool = True
    is_answered: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The request as plain data, its body as JSON where it is JSON and as text where it is not."""
        data = {name: value for name, value in vars(self).items() if name != "body"}
        data["time"] = self.time.isoformat()
        try:
            data["body"] = json.loads(self.body)
        except ValueError:
            data["body"] = self.body.decode("utf-8", "backslashreplace")
        return data


class Telling(Views, Tracing, CallMoments, Recording):
    """Recorded calls."""

    def told(self, session_id: str, call_id: Moment, *, attempt: int | None = None) -> ToldBody:
        """The exact body that was sent, rendered from the log by the renderer that made it then.

        `call_id` is that, or a moment that means a call: the event of an answer means the call that it
        answers, any other event, a version and a time the newest call up to it. Of a call that was sent
        several times the newest attempt, unless one is named or answered by the event. The hash that was
        recorded proves the bytes. Raises `UnknownCallError`, `UnknownRendererError` when this installation
        does not have the renderer, `PromptMismatchError` when what comes out is not what was sent,
        `PromptRedactedError` with the body around the gaps when something of it was redacted since,
        `UnknownVersionError` for a version or a time without one, and `SessionNotFoundError`.
        """
        key, newest = self._opened(session_id)
        call, attempt = self._meant(key, newest, call_id, attempt)
        prompt = self._prompt(key, call, attempt)
        payload = prompt.payload or {}
        if prompt.redacted:
            raise PromptRedactedError(call, prompt.redacted, self._body_left(key, payload, call))
        if payload.get(UNPROVEN):
            marks = (event.redacted for event in self._base(key, payload) if event.redacted)
            mark = next(marks, None)
            if mark is not None:
                raise PromptRedactedError(call, mark, self._body_left(key, payload, call))
        body = self._body(key, payload, call)
        if not is_sealed(payload, body):
            raise PromptMismatchError(call, str(payload.get("renderer") or "the log"), body)
        return ToldBody(
            session_id=session_id,
            call_id=str(payload["call"]),
            attempt=int(payload["attempt"]),
            version=prompt.version,
            view_version=int(payload["view"]),
            time=prompt.timestamp,
            model=payload.get("model"),
            renderer=payload.get("renderer"),
            body=body,
            is_exact=payload.get("form") != bodies.CANONICAL,
            is_answered=self._is_answered(key, str(payload["call"]), int(payload["attempt"])),
        )

    def _meant(
        self, key: SessionKey, newest: SessionState, call: Moment, attempt: int | None
    ) -> tuple[str, int | None]:
        """The id of the call that is meant, and which attempt; `UnknownCallError`."""
        if isinstance(call, str) and self._prompt_or_none(key, call) is not None:
            return call, attempt
        try:
            found = self._call_up_to(key, newest, call)
        except UnknownEventError:
            found = None
        if found is None:
            raise UnknownCallError(key.session_id, call)
        call_id, answered = found
        return call_id, answered if attempt is None else attempt

    def _is_answered(self, key: SessionKey, call_id: str, attempt: int) -> bool:
        try:
            self._entry(key, reply_id(call_id, attempt))
        except UnknownEventError:
            return False
        return True

    def diff(self, session_id: str, a: Moment, b: Moment) -> Diff:
        """What `b` has that `a` has not, what it lost, and which boundaries did it.

        Between two calls it is about what they were told, and `changes` say what else was sent differently.
        Raises what `view_at` raises.
        """
        calls = [self._call_at(session_id, moment) for moment in (a, b)]
        first, second = calls
        if first is None or second is None:
            return super().diff(session_id, a, b)
        key, _ = self._opened(session_id)
        states = [self._state(key, int((call.payload or {})["view"])) for call in (first, second)]
        told = [_stored(self._conversation(key, call.payload or {})) for call in (first, second)]
        difference = self._difference(key, states, *told)
        changes = (*_changes(first.payload or {}, second.payload or {}), *self._unstored(key, first, second))
        return replace(difference, changes=changes)

    def carried(self, session_id: str, event_id: str | int) -> Carried:
        """The summaries that carry a message on, in the order of the log, and the prompts that told it.

        A prompt tells it as it is, in one of these summaries, or by value, as a shortened result. Reads the
        log behind the message once. Raises `UnknownEventError`, `SessionNotFoundError`.
        """
        found = super().carried(session_id, event_id)
        if found.event.role is None:
            return found
        key, newest = self._opened(session_id)
        hows = {ref.version: "summary" for summary in found.summaries for ref in summary.summary}
        hows[found.event.version] = "message"
        entries = self._streams.entries(
            key.aggregate_id, session_id, after=found.event.version, upto=newest.version
        )
        prompts = [self._with_left(key, one) for one in entries if one.type == EventType.PROMPT_RENDERED]
        return Carried(
            session_id=session_id,
            event=found.event,
            summaries=found.summaries,
            prompts=tuple(self._carrying(key, prompts, found.event, hows)),
        )

    def _version_of(self, key: SessionKey, entry: SessionEvent) -> int:
        if entry.type == EventType.PROMPT_RENDERED:
            return int((entry.payload or {})["view"])
        return super()._version_of(key, entry)

    def _carrying(
        self,
        key: SessionKey,
        prompts: Sequence[SessionEvent],
        event: EventRef,
        hows: Mapping[int, str],
    ) -> Iterator[CarriedPrompt]:
        for prompt in prompts:
            payload = prompt.payload or {}
            if prompt.redacted and "told" not in payload:
                continue
            told = _stored(self._conversation(key, payload))
            how = {hows[entry.version] for entry in told if entry.version in hows}
            if not how:
                continue
            is_shortened = any(
                isinstance(item, Mapping) and "of" in item for item in payload.get("told", ())
            ) and any(
                entry.version == event.version and entry.message != self._message(key, event.version)
                for entry in told
            )
            yield CarriedPrompt(
                call_id=str(payload["call"]),
                attempt=int(payload["attempt"]),
                version=prompt.version,
                time=prompt.timestamp,
                how="value" if is_shortened else min(how) if "told" in payload else "view",
            )

    def _message(self, key: SessionKey, version: int) -> Message | None:
        entry = self._streams.entry_at(key.aggregate_id, key.session_id, version)
        return entry.message if entry else None

    def _call_at(self, session_id: str, moment: Moment) -> SessionEvent | None:
        """The prompt that a moment names, None when it names something else."""
        if not isinstance(moment, str):
            return None
        key, _ = self._opened(session_id)
        entry = self._entry(key, moment)
        return self._with_left(key, entry) if entry.type == EventType.PROMPT_RENDERED else None

    def _prompt(self, key: SessionKey, call_id: str, attempt: int | None) -> SessionEvent:
        """The event of an attempt, the newest one by default."""
        first = self._prompt_or_none(key, call_id)
        if first is None:
            raise UnknownCallError(key.session_id, call_id)
        known = [first]
        if attempt != 1:
            while following := self._prompt_or_none(key, attempt_id(call_id, len(known) + 1)):
                known.append(following)
        if attempt is not None and not 1 <= attempt <= len(known):
            raise UnknownCallError(key.session_id, f"{call_id}/{attempt}", len(known))
        return known[-1 if attempt is None else attempt - 1]

    def _prompt_or_none(self, key: SessionKey, event_id: str) -> SessionEvent | None:
        try:
            entry = self._entry(key, event_id)
        except UnknownEventError:
            return None
        return self._with_left(key, entry) if entry.type == EventType.PROMPT_RENDERED else None

    def _with_left(self, key: SessionKey, entry: SessionEvent) -> SessionEvent:
        """The entry; a redacted prompt or content with what is left of it, where its last redaction keeps
        that."""
        mark = entry.redacted
        while mark is not None:
            redaction = self._streams.event_at(key.aggregate_id, mark.version)
            if not isinstance(redaction, ContentRedacted):
                break
            mark = mark_of(redaction)
            if mark is None and redaction.content is not None:
                left = cast("dict[str, Any]", from_json_text(redaction.content))
                return replace(entry, payload=frozen(left))
        return entry

    def _body_left(self, key: SessionKey, payload: Mapping[str, Any], call_id: str) -> bytes | None:
        """The body around the gaps; None when too little of it is left."""
        if not payload.keys() & {"told", "patch", "literal"}:
            return None
        try:
            return self._body(key, payload, call_id)
        except Exception:  # a renderer may refuse what is left
            return None

    def _body(self, key: SessionKey, payload: Mapping[str, Any], call_id: str) -> bytes:
        """The bytes that the payload keeps."""
        if "literal" in payload:
            return of_literal(payload["literal"])
        content = self._content(key)
        if "patch" in payload:
            reference = None
            if "renderer" in payload:
                made = self._renderer(call_id, payload["renderer"])(
                    ChatRequest(conversation=tuple(self._base(key, payload))),
                    payload.get("rendered_for", ""),
                    stream=bool(payload.get("stream")),
                    adaptations=frozenset(),
                    profile={},
                )
                reference = bodies.reference(made, payload["form"])
            return bodies.written(patched(payload["patch"], reference, content), payload["form"])
        request = request_of(payload, self._conversation(key, payload), content)
        return self._renderer(call_id, payload["renderer"])(
            request,
            payload["model"],
            stream=bool(payload.get("stream")),
            adaptations=frozenset(payload.get("adaptations", ())),
            profile=payload.get("profile", {}),
        )

    def _conversation(self, key: SessionKey, payload: Mapping[str, Any]) -> Told:
        """The conversation that was sent; the whole view where the body does not tell it."""
        base = self._base(key, payload)
        if "told" not in payload:
            return tuple(base)
        return conversation_of(payload["told"], base, self._content(key))

    def _base(self, key: SessionKey, payload: Mapping[str, Any]) -> Sequence[SessionEvent]:
        view = self._view(key, self._state(key, int(payload["view"])))
        told = view.told_events(payload.get("branch"))
        if not payload.get("picked"):
            return told
        return base_of(told, filter_of(payload["filter"]), payload.get("turn_from"))

    def _content(self, key: SessionKey) -> Callable[[str], Any]:
        def content(name: str) -> Any:
            try:
                entry = self._with_left(key, self._entry(key, content_id(name)))
                return (entry.payload or {})["content"]
            except (UnknownEventError, KeyError) as error:
                raise AuditError(
                    f"The log holds no content {name}, which a prompt names: run `turnlog audit verify`."
                ) from error

        return content

    def _renderer(self, call_id: str, name: str) -> Renderer:
        renderer = self._renderers.get(name)
        if renderer is None:
            raise UnknownRendererError(call_id, name, self._renderers)
        return renderer

    def _unstored(self, key: SessionKey, first: SessionEvent, second: SessionEvent) -> Iterator[Change]:
        """Messages of one of two calls that stand in no log."""
        texts = [
            [
                (entry.message if isinstance(entry, SessionEvent) else entry)
                for entry in self._conversation(key, call.payload or {})
                if not isinstance(entry, SessionEvent) or entry.version < 0
            ]
            for call in (first, second)
        ]
        before, after = ([message.to_dict() for message in some if message] for some in texts)
        if before != after:
            yield Change("unstored messages", before, after)


def _stored(told: Told) -> list[SessionEvent]:
    return [entry for entry in told if isinstance(entry, SessionEvent) and entry.version >= 0]


def _changes(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Change]:
    """Settings that are not the same."""
    pairs = [
        {
            **{name: value for name, value in one.items() if name not in _NOT_SETTINGS},
            **one.get("settings", {}),
        }
        for one in (first, second)
    ]
    before, after = pairs
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield Change(name, before.get(name), after.get(name))
