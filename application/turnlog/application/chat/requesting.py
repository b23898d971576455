"""A turn and its model: rendering, asking, overflows, compaction in between, and answers that broke off."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from turnlog.application.chat.asking import Asked, Asking
from turnlog.application.chat.calibration import ESTIMATE, CalibratedTrigger
from turnlog.application.chat.errors import (
    ContextOverflowError,
    StreamInterruptedError,
)
from turnlog.application.chat.model import ChatReply, FinishReason, RenderedRequest, Rendering
from turnlog.application.chat.progress import Entry, OvertakenError
from turnlog.application.chat.recording import ModelCall, as_events, unstored
from turnlog.application.chat.steps import (
    Answered,
    Ask,
    Compact,
    Do,
    Steps,
    Tell,
    TurnCutError,
)
from turnlog.application.chat.storing import Storing
from turnlog.application.chat.turn import (
    Compacted,
)
from turnlog.application.turns import TurnStep
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.errors import (
    TurnInProgressError,
    VersionConflictError,
)
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message

_logger = logging.getLogger("turnlog")

MAX_RENDERINGS: Final = 50
"""How often a request is rendered anew because others wrote meanwhile."""


class Requesting(Storing):
    """How a turn asks its model."""

    def _answer(self, pending: list[Entry]) -> Steps[ChatReply]:
        """Store what leads to the request, and ask the model; once more behind an overflow."""
        overflowed = False
        self._so_far.attempt = 1
        while True:
            asked = yield from self._prompt(pending)
            pending = []
            assert self._call is not None  # noqa: S101 - it was just prepared
            try:
                answered: Answered = yield Ask(self._call.rendered, self._resent)
                self._call = replace(self._call, seconds=answered.seconds)
                return _with_metadata(answered.reply, self._model, asked)
            except ContextOverflowError as error:
                if overflowed:
                    raise
                overflowed = True
                self._so_far.limit = self._learned(error, asked)
                self._so_far.attempt += 1
                yield from self._compact(asks=False)
            except TurnCutError as cut:
                if cut.reply is not None:
                    yield from self._store_cut(cut.reply, FinishReason.CANCELLED, asked)
                raise
            except StreamInterruptedError as error:
                yield from self._store_cut(error.reply, FinishReason.ERROR, asked)
                raise

    def _prompt(self, pending: Sequence[Entry]) -> Steps[Asked]:
        """Render the request over the view as it will be, and store what leads to it at that version."""
        compacts = self._settings.trigger is not None and self._so_far.attempt == 1
        for rendering in range(MAX_RENDERINGS):
            view = yield from self._view()
            events = self._pending_events(pending, view.version)
            if compacts and self._so_far.compacts_in_between:
                compacts = False
                result = yield from self._compact(asks=True, pending=events)
                if result is not None and not result.is_unchanged:
                    view = yield from self._view()
                    events = self._pending_events(pending, view.version)
            yield from self._refuse_overtaken(pending, view)
            turn_from = view.version + 1 if self._so_far.turn_from is None else self._so_far.turn_from
            asked = self._asking.ask(view, turn_from, self._so_far.asides, events, self._so_far.limit)
            rendered = self._model.render(asked.request, stream=self._stream)
            self._call = self._model_call(asked, rendered, turn_from)
            prompt = yield from self._prompt_events(self._call)
            try:
                yield from self._write(pending, prompt, expected=view.version)
            except (VersionConflictError, TurnInProgressError):
                if not self._so_far.is_marked and self._so_far.known_until is not None:
                    raise OvertakenError from None
                if rendering == MAX_RENDERINGS - 1:
                    raise
            else:
                return asked
        raise AssertionError("unreachable")

    def _prompt_events(self, call: ModelCall) -> Steps[tuple[NewEvent, ...]]:
        """What the recorder makes of the request; it may read the log, so it is a step of its own."""
        events: tuple[NewEvent, ...] = yield Do(lambda _: as_events(self._settings.recorder.prompt(call)))
        return events

    @cached_property
    def _asking(self) -> Asking:
        return Asking(self._settings, self._count, self._model.model, self.mark.branch, **self._chosen())

    def _chosen(self) -> dict[str, Any]:
        settings, opening = self._settings, self._opening
        chosen = settings.filter
        if opening.filter is not None:
            chosen = opening.filter if chosen is None else chosen.merge(opening.filter)
        texts = [text for text in (settings.instructions, opening.system) if text]
        return {
            "chosen": chosen,
            "instructions": tuple(unstored(Message.system(text), synthetic=True) for text in texts),
        }

    def _pending_events(self, pending: Sequence[Entry], version: int) -> list[SessionEvent]:
        """The messages as events: with the versions that they will have, or none when they are not stored."""
        events: list[SessionEvent] = []
        for entry in pending:
            version += self._keeps(entry)
            at = version if self._keeps(entry) else -1
            events.append(unstored(entry.message, branch=self.mark.branch, version=at))
        return events

    def _model_call(self, asked: Asked, rendered: RenderedRequest, turn_from: int) -> ModelCall:
        return ModelCall(
            session_id=self.session_id,
            turn_id=self.turn_id,
            branch=self.mark.branch,
            version=asked.version,
            turn_from=turn_from,
            attempt=self._so_far.attempt,
            rendered=rendered,
            filter=self._asking.chosen,
            placeholders=asked.placeholders,
            left_out=asked.left_out,
            unstored=asked.unstored,
        )

    def _resent(self, rendered: RenderedRequest) -> Do | None:
        """What has to be stored before a body leaves that differs from the one rendered."""
        assert self._call is not None  # noqa: S101 - a request is being sent
        self._so_far.attempt += 1
        self._call = replace(self._call, rendered=rendered, attempt=self._so_far.attempt)
        events = as_events(self._settings.recorder.prompt(self._call))
        return Do(lambda s: s.record_turn(self.session_id, events, self.mark)) if events else None

    def _learned(self, error: ContextOverflowError, asked: Asked) -> int:
        """How large a request may be, by our own estimate, after what the provider said."""
        estimate = self._asking.cost_of(asked.request)
        scale = estimate / error.sent if error.sent else 1.0
        learned = int(0.95 * scale * error.limit) if error.limit else int(0.75 * estimate)
        return min(learned, self._so_far.limit or learned)

    def _compact(self, asks: bool, pending: Sequence[SessionEvent] = ()) -> Steps[CompactionResult | None]:
        """One pass. What it raises is logged and reported, never raised into the turn."""
        settings = self._settings
        strategy = settings.strategy
        if strategy is None:
            return None
        beside = (*self._asking.beside, *(replace(event, synthetic=True) for event in pending))
        trigger = (
            CalibratedTrigger(settings.trigger, self._model.model, beside)
            if asks and settings.trigger is not None
            else None
        )
        try:
            result: CompactionResult = yield Compact(
                self.session_id, trigger, strategy, self.mark.branch, settings.on_race
            )
        except Exception as error:
            _logger.warning("A compaction failed: %s.", type(error).__name__)
            self._so_far.compaction_error = error
            self._so_far.compacts_in_between = False
            return None
        if result.reason is not CompactionReason.TRIGGER_DID_NOT_FIRE:
            self._so_far.compaction = result
            self._so_far.compacts_in_between = not result.is_unchanged
        if not result.is_unchanged:
            yield Tell(Compacted(result))
        return result

    def _store_cut(self, reply: ChatReply, reason: FinishReason, asked: Asked) -> Steps[None]:
        """Store what came of an answer that broke off, and end the turn."""
        reply = _with_metadata(replace(reply, finish_reason=reason), self._model, asked)
        entries = [Entry(reply.message, self._so_far.place)] if reply.message.parts else []
        if reply.usage is not None:
            self._so_far.usages.append(reply.usage)
        self._so_far.finish_reason = reason
        assert self._call is not None  # noqa: S101 - it was answered
        yield from self._write(
            entries, as_events(self._settings.recorder.reply(self._call, reply)), TurnStep.END
        )


def _with_metadata(reply: ChatReply, model: Rendering, asked: Asked) -> ChatReply:
    """The answer with what is known about it in the metadata of its message, which no model is told."""
    said = {
        "provider": model.provider,
        "model": reply.model or model.model,
        "response_id": reply.response_id,
        "finish_reason": str(reply.finish_reason),
        "provider_finish_reason": reply.provider_finish_reason,
        "usage": reply.usage.to_dict() if reply.usage else None,
        "request_model": model.model if reply.model not in (None, model.model) else None,
        ESTIMATE: asked.estimate.to_dict() if asked.estimate else None,
    }
    known = {name: value for name, value in said.items() if value is not None}
    metadata = {**(reply.message.metadata or {}), **known}
    return replace(reply, message=reply.message.model_copy(update={"metadata": metadata}))
