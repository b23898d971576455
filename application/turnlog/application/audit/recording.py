"""Prompts and answers on their way into the log."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast
from uuid import UUID

from turnlog.application.appending import Appendable
from turnlog.application.async_service import AnySessionService
from turnlog.application.audit import bodies
from turnlog.application.audit.core import AuditCore
from turnlog.application.audit.errors import InvalidPromptError
from turnlog.application.audit.prices import Prices, cost_data
from turnlog.application.audit.prompts import (
    NO_TIME,
    UNPROVEN,
    Contents,
    base_of,
    content_id,
    conversation_items,
    conversation_of,
    filter_data,
    literal,
    patch_of,
    request_of,
    sealed,
    settings_of,
)
from turnlog.application.audit.renderers import Renderer, RendererRegistry
from turnlog.application.chat.model import ChatReply, ChatRequest, RenderedRequest
from turnlog.application.chat.usage import Usage
from turnlog.application.streams import Lru
from turnlog.application.writing import SessionKey
from turnlog.domain.criteria import at_least
from turnlog.domain.errors import VersionConflictError
from turnlog.domain.filters import EventFilter
from turnlog.domain.ids import check_branch, check_id, is_ancestor
from turnlog.domain.json_text import check_json
from turnlog.domain.log import EventType, NewEvent, OwnEvent, SessionEvent
from turnlog.domain.messages import Message

MAX_CALL_ID = 160
"""Characters of the id of a call: those of its attempts and of its answer are made from it."""

_ATTEMPTS = 50
_NO_FIELDS: Mapping[str, Any] = {}


class RecordedCall(Protocol):
    """One request to a model, before it leaves.

    `version` is that of the view that was rendered, with the messages that are stored in the same write.
    `attempt` counts the requests of one call of the turn from 1.
    """

    @property
    def session_id(self) -> str:
        """The session."""
        ...

    @property
    def turn_id(self) -> str:
        """The turn; in it one call follows on the other."""
        ...

    @property
    def branch(self) -> str | None:
        """The branch whose model is asked."""
        ...

    @property
    def version(self) -> int:
        """The version of the view."""
        ...

    @property
    def turn_from(self) -> int:
        """The version at which the turn begins."""
        ...

    @property
    def attempt(self) -> int:
        """Which request of the call it is."""
        ...

    @property
    def rendered(self) -> RenderedRequest:
        """What is sent."""
        ...

    @property
    def filter(self) -> EventFilter | None:
        """What chose among the events in front of the turn."""
        ...


class _Keeping(AuditCore):
    """What keeps prompts small: references to the log, and contents that are stored once per session."""

    def __init__(self, service: AnySessionService, *, renderers: RendererRegistry | None = None) -> None:
        super().__init__(service, renderers=renderers)
        self._held: Lru[tuple[UUID, str], bool] = Lru(4096)

    def _unheld(self, key: SessionKey, contents: Contents) -> list[NewEvent]:
        """The contents that the session does not hold yet, as events."""
        return [event for name, event in contents.events.items() if not self._is_held(key, name)]

    def _is_held(self, key: SessionKey, name: str) -> bool:
        known = (key.aggregate_id, name)
        if self._held.get(known):
            return True
        is_held = self._locate(key, content_id(name)) is not None
        if is_held:
            self._held.put(known, True)
        return is_held

    def _rendered_payload(
        self,
        rendered: RenderedRequest,
        told: Sequence[SessionEvent],
        chosen: EventFilter | None,
        turn_from: int | None,
        contents: Contents,
    ) -> dict[str, Any]:
        """What tells the body again: references for a renderer that gives these bytes, else the bytes."""
        payload: dict[str, Any] = {"renderer": rendered.renderer, "model": rendered.model}
        if rendered.is_stream:
            payload["stream"] = True
        if rendered.adaptations:
            payload["adaptations"] = list(rendered.adaptations)
        if rendered.profile:
            payload["profile"] = dict(rendered.profile)
        if chosen is not None:
            payload["filter"] = filter_data(chosen)
        kept = Contents()
        settings = settings_of(rendered.request, kept)
        items, is_picked = self._items(rendered, told, chosen, turn_from, kept)
        if is_picked:
            settings |= {"picked": True, **({} if turn_from is None else {"turn_from": turn_from})}
        settings["told"] = items
        if not self._gives_back({**payload, **settings}, told, chosen, turn_from, kept, rendered):
            return {**payload, "literal": literal(rendered.body)}
        contents.events.update(kept.events)
        return {**payload, **settings}

    @staticmethod
    def _items(
        rendered: RenderedRequest,
        told: Sequence[SessionEvent],
        chosen: EventFilter | None,
        turn_from: int | None,
        contents: Contents,
    ) -> tuple[list[Any], bool]:
        conversation = rendered.request.conversation
        plain = conversation_items(conversation, told, contents)
        if chosen is None:
            return plain, False
        picked = conversation_items(conversation, base_of(told, chosen, turn_from), contents)
        is_shorter = len(str(picked)) < len(str(plain))
        return (picked, True) if is_shorter else (plain, False)

    def _gives_back(
        self,
        payload: Mapping[str, Any],
        told: Sequence[SessionEvent],
        chosen: EventFilter | None,
        turn_from: int | None,
        contents: Contents,
        rendered: RenderedRequest,
    ) -> bool:
        """Whether the renderer of this installation makes the same bytes of what is kept."""
        renderer = self._renderers.get(rendered.renderer)
        if renderer is None:
            return False

        def content(name: str) -> Any:
            return (contents.events[name].payload or {})["content"]

        base = base_of(told, chosen, turn_from) if payload.get("picked") else told
        try:
            request = request_of(payload, conversation_of(payload["told"], base, content), content)
            body = renderer(
                request,
                rendered.model,
                stream=rendered.is_stream,
                adaptations=frozenset(rendered.adaptations),
                profile=rendered.profile,
            )
        except Exception:  # it cannot say this request, whoever made it could
            return False
        return body == rendered.body


class PromptRecorder(_Keeping):
    """Records every call of a chat: `SessionChat(…, recorder=PromptRecorder(sessions))`.

    It makes the events that the chat stores in the writes of the messages themselves, and writes nothing on
    its own. It takes the service that the chat has, one for asyncio too: such a chat calls it in a thread.
    With `prices` answers hold what they cost. Latency is counted from the prompt to the answer.
    """

    def __init__(
        self,
        service: AnySessionService,
        *,
        prices: Prices | None = None,
        renderers: RendererRegistry | None = None,
    ) -> None:
        super().__init__(service, renderers=renderers)
        self._prices = prices or {}
        self._open: Lru[tuple[str, str], tuple[str, float]] = Lru(4096)

    def prompt(self, call: RecordedCall) -> Sequence[NewEvent]:
        """The event that tells the request, and in front of it the contents that the session lacks."""
        key = self._key(call.session_id)
        call_id = self._call_id(call)
        contents = Contents()
        told = self._told(key, call)
        rendered = self._without_redacted(call.rendered, told)
        payload = {
            "call": call_id,
            "attempt": call.attempt,
            "view": call.version,
            **({} if call.branch is None else {"branch": call.branch}),
            **self._rendered_payload(rendered, told, call.filter, call.turn_from, contents),
            **(sealed(rendered.body) if rendered is call.rendered else {UNPROVEN: True}),
        }
        event_id = attempt_id(call_id, call.attempt)
        prompt = OwnEvent(
            type=EventType.PROMPT_RENDERED, payload=_plain(payload), id=event_id, branch=call.branch
        )
        return [*self._unheld(key, contents), prompt]

    def reply(self, call: RecordedCall, reply: ChatReply) -> NewEvent | None:
        """The event that goes with the answer; none when the prompt was not recorded here."""
        opened = self._open.get((call.session_id, call.turn_id))
        if opened is None:
            return None
        call_id, began = opened
        payload = reply_payload(
            call_id,
            call.attempt,
            response_id=reply.response_id,
            model=reply.model,
            finish_reason=reply.finish_reason.value,
            provider_finish_reason=reply.provider_finish_reason,
            usage=reply.usage,
            latency_ms=round((time.monotonic() - began) * 1000, 1),
            cost=cost_data(self._prices, reply.usage, reply.model, call.rendered.model),
        )
        return OwnEvent(
            type=EventType.MODEL_REPLIED,
            payload=payload,
            id=reply_id(call_id, call.attempt),
            branch=call.branch,
        )

    def _without_redacted(self, rendered: RenderedRequest, told: Sequence[SessionEvent]) -> RenderedRequest:
        """The request; where something of it was redacted since the conversation was read, one that tells the
        placeholder instead: what is sent cannot be called back, but must not come into the log again."""
        gone = {event.version: event for event in told if event.redacted}
        conversation = tuple(_now(entry, gone) for entry in rendered.request.conversation)
        if not any(
            now is not entry for now, entry in zip(conversation, rendered.request.conversation, strict=True)
        ):
            return rendered
        request = replace(rendered.request, conversation=conversation)
        renderer = self._renderers.get(rendered.renderer)
        try:
            body = (
                b""
                if renderer is None
                else renderer(
                    request,
                    rendered.model,
                    stream=rendered.is_stream,
                    adaptations=frozenset(rendered.adaptations),
                    profile=rendered.profile,
                )
            )
        except Exception:  # it cannot say this request
            body = b""
        return replace(rendered, request=request, body=body)

    def _call_id(self, call: RecordedCall) -> str:
        turn = (call.session_id, call.turn_id)
        opened = self._open.get(turn)
        call_id = opened[0] if opened and call.attempt > 1 else new_call_id()
        self._open.put(turn, (call_id, time.monotonic()))
        return call_id

    def _told(self, key: SessionKey, call: RecordedCall) -> list[SessionEvent]:
        """What the view tells the branch, with the messages that are stored in the same write."""
        newest = self._streams.state(key.aggregate_id)
        events: list[SessionEvent] = []
        if newest is not None and not newest.is_deleted:
            state = newest if newest.version <= call.version else self._state(key, call.version)
            events += self._view(key, state).told_events(call.branch)
        reached = -1 if newest is None else newest.version
        pending = (
            entry
            for entry in call.rendered.request.conversation
            if isinstance(entry, SessionEvent) and reached < entry.version <= call.version
        )
        return [*events, *sorted(pending, key=lambda event: event.version)]


class Recording(_Keeping):
    """Prompts and answers of applications that call their models themselves."""

    def record_prompt(
        self,
        session_id: str,
        *,
        body: bytes | Mapping[str, Any],
        append: Sequence[Appendable] = (),
        call_id: str | None = None,
        attempt: int = 1,
        branch: str | None = None,
        model: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> str:
        """Record what is about to be sent to a model; returns the id of the call.

        Give the bytes that are sent, and `told` gives these back; of a mapping it gives canonical JSON.
        `append` are messages that cause the call: they are stored in the same write. Pieces that a renderer
        makes of stored messages are kept as references. A request that is sent again with another body is
        another `attempt` of its call. Raises `InvalidPromptError`, `SessionNotFoundError`.
        """
        sent, form, value = bodies.read(_checked(body))
        call_id = _checked_call(call_id) or new_call_id()
        at_least("attempt", attempt, 1, InvalidPromptError)
        if branch is not None:
            check_branch(branch)
        fields = cast("Mapping[str, Any]", value) if isinstance(value, dict) else _NO_FIELDS
        name = model or fields.get("model")
        key = self._key(session_id)
        new: Sequence[NewEvent] = NewEvent.each_of(append)
        for tries in range(_ATTEMPTS):
            state = self._writer.current(key)
            new = [event for event in new if event.id is None or self._locate(key, event.id) is None]
            told = [*self._view(key, state).told_events(branch), *_pending(new, state.version, branch)]
            version = state.version + len(new)
            contents = Contents()
            payload: dict[str, Any] = {"call": call_id, "attempt": attempt, "view": version}
            if branch is not None:
                payload["branch"] = branch
            if isinstance(name, str):
                payload["model"] = name
            payload |= self._body_payload(sent, form, value, told, contents)
            payload |= sealed(sent)
            prompt = OwnEvent(
                type=EventType.PROMPT_RENDERED,
                payload=payload,
                id=attempt_id(call_id, attempt),
                branch=branch,
            )
            try:
                self._service.append_events(
                    session_id,
                    [*new, *self._unheld(key, contents), prompt],
                    expected_version=state.version if new else None,
                    context=context,
                )
            except VersionConflictError:
                if tries == _ATTEMPTS - 1:
                    raise
            else:
                break
        return call_id

    def record_reply(
        self,
        session_id: str,
        call_id: str,
        *,
        append: Sequence[Appendable] = (),
        attempt: int = 1,
        response_id: str | None = None,
        model: str | None = None,
        finish_reason: str | None = None,
        usage: Usage | None = None,
        latency_ms: float | None = None,
        prices: Prices | None = None,
        context: Mapping[str, str] | None = None,
    ) -> None:
        """Record the answer to a recorded prompt, with the messages of it (`append`) in the same write.

        Raises `UnknownEventError` for a call that was not recorded, `SessionNotFoundError`.
        """
        key, _ = self._opened(session_id)
        prompt = self._entry(key, attempt_id(call_id, attempt))
        asked = (prompt.payload or {}).get("model")
        payload = reply_payload(
            call_id,
            attempt,
            response_id=response_id,
            model=model,
            finish_reason=finish_reason,
            usage=usage,
            latency_ms=latency_ms,
            cost=cost_data(prices or {}, usage, model, asked),
        )
        reply = OwnEvent(
            type=EventType.MODEL_REPLIED,
            payload=payload,
            id=reply_id(call_id, attempt),
            branch=prompt.branch,
        )
        self._service.append_events(session_id, [*append, reply], context=context)

    def _body_payload(
        self,
        sent: bytes,
        form: str | None,
        value: Any,
        told: Sequence[SessionEvent],
        contents: Contents,
    ) -> dict[str, Any]:
        """The shortest way to say the body: over what one of the renderers makes of the view, or as it is."""
        if form is None:
            return {"literal": literal(sent)}
        fields = cast("Mapping[str, Any]", value) if isinstance(value, dict) else _NO_FIELDS
        model, is_stream = str(fields.get("model", "")), bool(fields.get("stream"))
        best: tuple[int, dict[str, Any], Contents] | None = None
        for name, renderer in (*self._renderers.items(), (None, None)):
            kept = Contents()
            payload: dict[str, Any] = {"form": form}
            reference: Any = None
            if name is not None and renderer is not None:
                payload["renderer"] = name
                payload |= {"rendered_for": model} if model else {}
                payload |= {"stream": True} if is_stream else {}
                reference = _reference(renderer, told, model, is_stream, form)
            payload["patch"] = patch_of(cast("object", value), reference, kept)
            size = len(str(payload)) + sum(len(str(event.payload)) for event in kept.events.values())
            if best is None or size < best[0]:
                best = (size, payload, kept)
        assert best is not None  # noqa: S101 - without a renderer it always goes
        contents.events.update(best[2].events)
        return best[1]


def _reference(
    renderer: Renderer, told: Sequence[SessionEvent], model: str, is_stream: bool, form: str
) -> Any:
    """What a renderer makes of the view; nothing when it cannot say it."""
    try:
        request = ChatRequest(conversation=tuple(told))
        made = renderer(request, model, stream=is_stream, adaptations=frozenset(), profile={})
        return bodies.reference(made, form)
    except Exception:
        return None


def _now(entry: SessionEvent | Message, gone: Mapping[int, SessionEvent]) -> SessionEvent | Message:
    """The entry; the one of a redacted event where it is not known yet that it is redacted."""
    if not isinstance(entry, SessionEvent) or entry.redacted:
        return entry
    return gone.get(entry.version, entry)


def new_call_id() -> str:
    """A fresh id for a call."""
    return f"call-{secrets.token_hex(7)}"


def attempt_id(call_id: str, attempt: int) -> str:
    """The id of the event that holds this attempt's prompt; that of the first is the id of the call."""
    return call_id if attempt == 1 else f"{call_id}/{attempt}"


def reply_id(call_id: str, attempt: int) -> str:
    """The id of the event that holds the answer to an attempt."""
    return f"{attempt_id(call_id, attempt)}/reply"


def reply_payload(
    call_id: str,
    attempt: int,
    *,
    response_id: str | None,
    model: str | None,
    finish_reason: str | None,
    usage: Usage | None,
    latency_ms: float | None,
    cost: Mapping[str, str] | None,
    provider_finish_reason: str | None = None,
) -> dict[str, Any]:
    """The payload of MODEL_REPLIED; what is not known is left out."""
    said = {
        "call": call_id,
        "attempt": attempt,
        "response_id": response_id,
        "model": model,
        "finish_reason": finish_reason,
        "provider_finish_reason": provider_finish_reason,
        "usage": usage.to_dict() if usage else None,
        "latency_ms": latency_ms,
        "cost": cost,
    }
    return {name: value for name, value in said.items() if value is not None}


def _checked(body: bytes | Mapping[str, Any]) -> bytes | Mapping[str, Any]:
    if isinstance(body, Mapping):
        check_json(dict(body), "body")
        return body
    if not isinstance(body, (bytes, bytearray)):  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidPromptError("A body is given as bytes, as they are sent, or as a mapping.")
    return bytes(body)


def _checked_call(call_id: str | None) -> str | None:
    if call_id is not None and len(check_id("Call id", call_id)) > MAX_CALL_ID:
        raise InvalidPromptError(f"The id of a call has at most {MAX_CALL_ID} characters.")
    return call_id


def _pending(new: Sequence[NewEvent], version: int, branch: str | None) -> list[SessionEvent]:
    """Messages that are about to be stored, as the events that they become."""
    events = [
        SessionEvent(
            id=event.id or "",
            type=EventType.MESSAGE,
            version=version + place,
            timestamp=NO_TIME,
            branch=event.branch,
            message=event.message,
        )
        for place, event in enumerate(new, 1)
    ]
    return [event for event in events if event.message and is_ancestor(event.branch, branch)]


def _plain(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload with plain lists and dicts, as JSON has them."""
    return cast("dict[str, Any]", _plain_value(payload))


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain_value(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain_value(item) for item in cast("list[Any]", value)]
    return value
