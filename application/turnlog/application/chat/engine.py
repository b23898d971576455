"""One turn as a generator that decides and does nothing itself.

It yields what is to be done next and receives the result; what failed is thrown into it. The sync chat and
the one for asyncio carry the steps out, so that no rule of a turn exists twice.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from turnlog.application.chat.asking import Aside, Asked, Asking
from turnlog.application.chat.calibration import ESTIMATE, CalibratedTrigger
from turnlog.application.chat.errors import (
    ContextOverflowError,
    MessageTooLargeError,
    StreamInterruptedError,
    TooManyRoundsError,
    TurnTakenOverError,
)
from turnlog.application.chat.ids import id_in_turn
from turnlog.application.chat.model import ChatReply, FinishReason, RenderedRequest, Rendering
from turnlog.application.chat.recording import ModelCall, as_events, unstored
from turnlog.application.chat.running import ToolJob, ToolOutcome, prepared
from turnlog.application.chat.settings import ChatSettings
from turnlog.application.chat.steps import Ask, Do, NextTool, Pause, StartTools, Steps, Tell, TurnCutError
from turnlog.application.chat.tools import ToolContext
from turnlog.application.chat.turn import (
    Compacted,
    MessageStored,
    ToolCallFinished,
    ToolCallStarted,
    Turn,
    TurnFinished,
    total,
)
from turnlog.application.chat.usage import Usage
from turnlog.application.service import SessionService
from turnlog.application.turns import CallReference, TurnMark, TurnStep, TurnWrite
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import CompactionReason, CompactionResult
from turnlog.domain.errors import (
    CallNotAwaitedError,
    SessionNotFoundError,
    TurnInProgressError,
    VersionConflictError,
)
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallPart
from turnlog.domain.view import View

_logger = logging.getLogger("turnlog")

MAX_RENDERINGS: Final = 50
"""How often a request is rendered anew because others wrote meanwhile."""

_CUT = (FinishReason.CANCELLED, FinishReason.ERROR)


@dataclass(frozen=True)
class Opening:
    """How a turn begins: with a message of the user, or with what became of an awaited call (`settles`).

    Of an awaited call `result` is the answer; without one it is run (`runs`), or given up.
    """

    session_id: str
    message: Message | None = None
    branch: str | None = None
    principal: str | None = None
    key: str | None = None
    wait: float | None = None
    filter: EventFilter | None = None
    system: str | None = None
    settles: CallReference | None = None
    result: Message | None = None
    runs: bool = False


@dataclass(eq=False)
class _Entry:
    """A message of the turn, its place in it, and its event once it is stored."""

    message: Message
    place: int = 0
    event: SessionEvent | None = None
    must_store: bool = False


@dataclass
class _Progress:
    """What has happened in the turn so far."""

    limit: int | None = None
    entries: list[_Entry] = field(default_factory=list[_Entry])
    asides: list[Aside] = field(default_factory=list[Aside])
    awaiting: list[CallReference] = field(default_factory=list[CallReference])
    usages: list[Usage] = field(default_factory=list[Usage])
    place: int = 0
    turn_from: int | None = None
    newest: int = -1
    rounds: int = 0
    attempt: int = 1
    is_marked: bool = False
    is_repeat: bool = False
    finish_reason: FinishReason | None = None
    compaction: CompactionResult | None = None
    compaction_error: Exception | None = None
    compacts_in_between: bool = True
    waited: float = 0.0
    settling: Settling | None = None


@dataclass(frozen=True)
class Settling:
    """What a write does to an awaited call."""

    answers: CallReference | None = None
    abandons: CallReference | None = None


class _OvertakenError(Exception):
    """Another process began a turn before this one had stored anything: begin anew."""


class TurnEngine:
    """The rules of one turn."""

    def __init__(
        self,
        settings: ChatSettings,
        model: Rendering,
        opening: Opening,
        count: Callable[[SessionEvent | Message], int],
        *,
        stream: bool,
    ) -> None:
        self._settings = settings
        self._model = model
        self._opening = opening
        self._count = count
        self._stream = stream
        key = opening.key
        turn_id = secrets.token_hex(10) if key is None else id_in_turn(opening.session_id, key, "turn")
        self.mark = TurnMark(turn_id, opening.branch, settings.lease)
        self._so_far = _Progress(limit=settings.max_request_tokens)
        self._call: ModelCall | None = None

    @property
    def session_id(self) -> str:
        """The session of the turn."""
        return self._opening.session_id

    @property
    def is_marked(self) -> bool:
        """Whether the turn holds its mark, which has to be renewed."""
        return self._so_far.is_marked

    # --- the whole turn

    def run(self) -> Steps[Turn]:
        """The steps of the turn."""
        try:
            yield from self._turn()
            if self._settings.trigger is not None and not self._so_far.is_repeat:
                yield from self._compact(asks=True)
        except GeneratorExit:
            raise
        except TurnCutError:
            if self._so_far.is_marked or self._so_far.finish_reason is None:
                self._so_far.finish_reason = FinishReason.CANCELLED
            yield from self._end()
        except BaseException:
            yield from self._end()
            raise
        turn = self._result()
        with suppress(TurnCutError):  # there is nothing left to be cut
            yield Tell(TurnFinished(turn))
        return turn

    def _turn(self) -> Steps[None]:
        self._refuse_too_large()
        while True:
            try:
                pending = yield from self._opened()
                if pending is not None:
                    yield from self._rounds(pending)
                return
            except _OvertakenError:
                self._so_far = _Progress(limit=self._settings.max_request_tokens, waited=self._so_far.waited)

    def _opened(self) -> Steps[list[_Entry] | None]:
        """The messages that lead to the first request; None when there is nothing to be asked."""
        if self._opening.settles is not None:
            return (yield from self._settled(self._opening.settles))
        yield from self._view()
        if self._opening.key is not None:
            return (yield from self._resumed())
        return [self._opening_entry()]

    def _rounds(self, pending: list[_Entry]) -> Steps[None]:
        while True:
            reply = yield from self._answer(pending)
            answer, calls = yield from self._store_answer(reply)
            found = yield from self._use_tools(answer, calls) if calls else _nothing()
            if found is None:
                return
            pending = found

    def _result(self) -> Turn:
        so_far = self._so_far
        return Turn(
            session_id=self.session_id,
            turn_id=self.mark.turn_id,
            messages=tuple(entry.message for entry in so_far.entries),
            events=tuple(entry.event for entry in so_far.entries if entry.event),
            finish_reason=so_far.finish_reason,
            usage=total(so_far.usages),
            compaction=so_far.compaction,
            compaction_error=so_far.compaction_error,
            awaiting=tuple(so_far.awaiting),
            is_repeat=so_far.is_repeat,
        )

    # --- the session

    def _view(self) -> Steps[View]:
        """The view now. Waits while another turn runs, and makes the session on first use."""
        branch = self.mark.branch
        turn_id = self.mark.turn_id if self._so_far.is_marked else None
        pause = 0.02
        while True:
            try:
                view: View = yield Do(
                    lambda s: s.view_for_turn(self.session_id, branch=branch, turn_id=turn_id)
                )
            except SessionNotFoundError:
                if self._opening.settles is not None or self._so_far.entries:
                    raise
                yield Do(self._make_session)
            except TurnInProgressError:
                if turn_id is not None:
                    raise TurnTakenOverError(self.session_id) from None
                if self._so_far.waited >= (self._opening.wait or 0.0):
                    raise
                yield Pause(pause)
                self._so_far.waited += pause
                pause = min(pause * 1.5, 0.25)
            else:
                return view

    def _make_session(self, sessions: SessionService) -> object:
        owner = {SessionAttributes.PRINCIPAL_NAME: self._settings.default_principal}
        return sessions.find_or_create(self.session_id, metadata=None if sessions.principal else owner)

    def _write(
        self,
        entries: Sequence[_Entry],
        beside: Sequence[NewEvent] = (),
        step: TurnStep = TurnStep.GO_ON,
        *,
        expected: int | None = None,
    ) -> Steps[None]:
        """Store the messages and what belongs to them, and mark the turn, in one write."""
        so_far = self._so_far
        if step is TurnStep.GO_ON and not so_far.is_marked:
            step = TurnStep.BEGIN
        stored = [entry for entry in entries if self._keeps(entry)]
        events = (*(self._new_event(entry) for entry in stored), *beside)
        if events or so_far.settling or step is not TurnStep.GO_ON:
            write: TurnWrite = yield from self._recorded(events, step, expected)
            so_far.is_marked = write.is_marked and step is not TurnStep.END
            so_far.settling = None
            for entry, event in zip(stored, write.events, strict=False):
                self._note(entry, event)
            self._note_asides(entries)
            for entry in stored:
                if entry.event is not None:
                    yield Tell(MessageStored(entry.event))
            if not write.is_marked:
                raise TurnTakenOverError(self.session_id)
        else:
            self._note_asides(entries)

    def _recorded(self, events: Sequence[NewEvent], step: TurnStep, expected: int | None) -> Steps[TurnWrite]:
        """The write itself. Until its answer is there the turn counts as marked: whoever leaves it then ends
        a mark that may be there."""
        settling = self._so_far.settling
        was_marked, self._so_far.is_marked = self._so_far.is_marked, True
        try:
            write: TurnWrite = yield Do(
                lambda s: s.record_turn(
                    self.session_id,
                    events,
                    self.mark,
                    step,
                    expected_version=expected,
                    answers=settling.answers if settling else None,
                    abandons=settling.abandons if settling else None,
                )
            )
        except Exception:
            self._so_far.is_marked = was_marked
            raise
        return write

    def _note(self, entry: _Entry, event: SessionEvent) -> None:
        entry.event = event
        entry.message = event.message or entry.message
        self._so_far.newest = max(self._so_far.newest, event.version)
        if self._so_far.turn_from is None:
            self._so_far.turn_from = event.version
        if entry not in self._so_far.entries:
            self._so_far.entries.append(entry)

    def _note_asides(self, entries: Sequence[_Entry]) -> None:
        for entry in entries:
            if entry.event is None:
                said = unstored(entry.message, branch=self.mark.branch)
                self._so_far.asides.append(Aside(self._so_far.newest, said))
                self._so_far.entries.append(entry)

    def _new_event(self, entry: _Entry) -> NewEvent:
        return NewEvent(message=entry.message, id=self._id_at(entry.place), branch=self.mark.branch)

    def _id_at(self, place: int) -> str | None:
        key = self._opening.key
        return None if key is None else id_in_turn(self.session_id, key, place)

    def _keeps(self, entry: _Entry) -> bool:
        return entry.must_store or self._settings.store is None or self._settings.store.keeps(entry.message)

    def _end(self) -> Steps[None]:
        """Take the mark away, so that the next turn can begin; failing at it must not hide what happened."""
        if not self._so_far.is_marked:
            return
        try:
            yield from self._write((), (), TurnStep.END)
        except Exception as error:
            _logger.warning("The mark of a turn stays until it expires: %s.", type(error).__name__)

    # --- the request

    def _answer(self, pending: list[_Entry]) -> Steps[ChatReply]:
        """Store what leads to the request, and ask the model; once more behind an overflow."""
        overflowed = False
        self._so_far.attempt = 1
        while True:
            asked = yield from self._prompt(pending)
            pending = []
            assert self._call is not None  # noqa: S101 - it was just prepared
            try:
                reply: ChatReply = yield Ask(self._call.rendered, self._resent)
                return _with_metadata(reply, self._model, asked)
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

    def _prompt(self, pending: Sequence[_Entry]) -> Steps[Asked]:
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
            turn_from = view.version + 1 if self._so_far.turn_from is None else self._so_far.turn_from
            asked = self._asking.ask(view, turn_from, self._so_far.asides, events, self._so_far.limit)
            rendered = self._model.render(asked.request, stream=self._stream)
            self._call = self._model_call(asked, rendered, turn_from)
            prompt = as_events(self._settings.recorder.prompt(self._call))
            try:
                yield from self._write(pending, prompt, expected=view.version)
            except (VersionConflictError, TurnInProgressError):
                if not self._so_far.is_marked and self._opening.key is not None:
                    raise _OvertakenError from None
                if rendering == MAX_RENDERINGS - 1:
                    raise
            else:
                return asked
        raise AssertionError("unreachable")

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

    def _pending_events(self, pending: Sequence[_Entry], version: int) -> list[SessionEvent]:
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
            turn_id=self.mark.turn_id,
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
            result: CompactionResult = yield Do(
                lambda s: s.compact(self.session_id, trigger, strategy, branch=self.mark.branch)
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

    # --- the answer

    def _store_answer(self, reply: ChatReply) -> Steps[tuple[_Entry, list[tuple[int, ToolCallPart]]]]:
        """Store the answer; returns it and the calls that are to be made now, with their places."""
        so_far = self._so_far
        message = self._marked(reply.message)
        answer = _Entry(message, so_far.place, must_store=any(call.awaiting for call in message.tool_calls))
        runs = [
            (place, call) for place, call in enumerate(message.tool_calls) if not self._needs_approval(call)
        ]
        so_far.place += 1 + len(message.tool_calls)
        so_far.rounds += bool(message.tool_calls)
        so_far.finish_reason = reply.finish_reason
        if reply.usage is not None:
            so_far.usages.append(reply.usage)
        is_over = bool(runs) and so_far.rounds > self._settings.max_rounds
        step = TurnStep.GO_ON if runs and not is_over else TurnStep.END
        assert self._call is not None  # noqa: S101 - it was answered
        yield from self._write([answer], as_events(self._settings.recorder.reply(self._call, reply)), step)
        if is_over:
            raise TooManyRoundsError(self._settings.max_rounds)
        so_far.awaiting += (
            CallReference(answer.event.id, call.id or "")
            for call in message.tool_calls
            if answer.event and self._needs_approval(call)
        )
        return answer, runs

    def _store_cut(self, reply: ChatReply, reason: FinishReason, asked: Asked) -> Steps[None]:
        """Store what came of an answer that broke off, and end the turn."""
        reply = _with_metadata(replace(reply, finish_reason=reason), self._model, asked)
        entries = [_Entry(reply.message, self._so_far.place)] if reply.message.parts else []
        if reply.usage is not None:
            self._so_far.usages.append(reply.usage)
        self._so_far.finish_reason = reason
        assert self._call is not None  # noqa: S101 - it was answered
        yield from self._write(
            entries, as_events(self._settings.recorder.reply(self._call, reply)), TurnStep.END
        )

    def _marked(self, message: Message) -> Message:
        """The answer with those of its calls marked as awaiting whose results may come later."""
        calls = message.tool_calls
        if not any(self._may_wait(call) for call in calls):
            return message
        parts = (
            part.model_copy(update={"awaiting": True})
            if isinstance(part, ToolCallPart) and self._may_wait(part)
            else part
            for part in message.parts
        )
        return message.model_copy(update={"parts": tuple(parts)})

    def _may_wait(self, call: ToolCallPart) -> bool:
        tool = self._settings.tools.find(call.name)
        return tool is not None and (tool.needs_approval or tool.awaits)

    def _needs_approval(self, call: ToolCallPart) -> bool:
        tool = self._settings.tools.find(call.name)
        return tool is not None and tool.needs_approval

    # --- tools

    def _use_tools(
        self, answer: _Entry, calls: Sequence[tuple[int, ToolCallPart]]
    ) -> Steps[list[_Entry] | None]:
        """Make the calls and store each result as it comes, the last one with the next request.

        None when a call of the message awaits its result: the turn ends.
        """
        by_place = dict(calls)
        for call in by_place.values():
            yield Tell(ToolCallStarted(call))
        yield StartTools(tuple(self._job(place, call) for place, call in calls))
        left = len(calls)
        while True:
            outcome: ToolOutcome = yield NextTool()
            left -= 1
            entry = yield from self._result_entry(answer, by_place[outcome.place], outcome)
            results = [] if entry is None else [entry]
            if left == 0 and not self._so_far.awaiting:
                return results
            yield from self._write(results, step=TurnStep.GO_ON if left else TurnStep.END)
            if left == 0:
                return None

    def _job(self, place: int, call: ToolCallPart) -> ToolJob | ToolOutcome:
        context = ToolContext(self.session_id, self.mark.branch, self._opening.principal, call.id)
        return prepared(self._settings.tools, place, call, context, self._settings.tool_time_limit)

    def _result_entry(self, answer: _Entry, call: ToolCallPart, outcome: ToolOutcome) -> Steps[_Entry | None]:
        """The result as a message; none of a call that waits and has nothing to say in the meantime."""
        if outcome.awaiting is not None and answer.event is not None:
            self._so_far.awaiting.append(CallReference(answer.event.id, call.id or ""))
        entry: _Entry | None = None
        if outcome.awaiting is None or outcome.awaiting.note:
            message = self._fitting(outcome, call)
            place = answer.place + 1 + outcome.place
            entry = _Entry(message, place, must_store=call.awaiting)
        final = None if outcome.awaiting or entry is None else entry.message.tool_responses[0]
        yield Tell(ToolCallFinished(call, final))
        return entry

    def _fitting(self, outcome: ToolOutcome, call: ToolCallPart) -> Message:
        message = Message.tool([outcome.response(call)])
        limit = self._settings.max_message_tokens
        tokens = 0 if limit is None else self._count(message)
        if limit is not None and tokens > limit:
            text = f"The result costs {tokens:,} tokens, one message may cost {limit:,}: ask for less of it."
            refused = ToolOutcome(outcome.place, text, is_error=True)
            return Message.tool([refused.response(call)])
        return message

    # --- turns that began before

    def _opening_entry(self) -> _Entry:
        assert self._opening.message is not None  # noqa: S101 - a turn that settles no call has one
        self._so_far.place = 1
        return _Entry(self._opening.message, 0)

    def _refuse_too_large(self) -> None:
        limit = self._settings.max_message_tokens
        for message in (self._opening.message, self._opening.result):
            if limit is not None and message is not None and (tokens := self._count(message)) > limit:
                raise MessageTooLargeError(tokens, limit)

    def _resumed(self) -> Steps[list[_Entry] | None]:
        """What of this key is stored already; what is missing is done, and nothing is asked twice."""
        first = yield from self._stored([0, 1])
        entry = self._opening_entry()
        if not first:
            return [entry]
        if 0 in first:
            self._note(entry, first[0])
        else:
            self._so_far.newest = first[1].version - 1
            self._so_far.turn_from = first[1].version
            self._note_asides([entry])
        while True:
            stored = yield from self._stored([self._so_far.place])
            answer = stored.get(self._so_far.place)
            if answer is None or answer.message is None:
                return []
            pending = yield from self._resumed_behind(answer, answer.message)
            if pending is None or pending:
                return pending

    def _resumed_behind(self, event: SessionEvent, message: Message) -> Steps[list[_Entry] | None]:
        """What is to be done behind a stored answer: nothing (None), a request, or to look further ([])."""
        so_far = self._so_far
        answer = _Entry(message, so_far.place)
        self._note(answer, event)
        so_far.finish_reason = _finish_reason(message)
        so_far.usages += [usage] if (usage := Usage.of(message)) else []
        calls = list(enumerate(message.tool_calls))
        so_far.rounds += bool(calls)
        so_far.place += 1 + len(calls)
        if not calls or so_far.finish_reason in _CUT:
            so_far.is_repeat = True
            return None
        results = yield from self._stored([answer.place + 1 + place for place, _ in calls])
        for place in sorted(results, key=lambda one: results[one].version):
            found = results[place]
            if found.message is not None:
                self._note(_Entry(found.message, place), found)
        missing = [(place, call) for place, call in calls if answer.place + 1 + place not in results]
        for place, call in list(missing):
            if call.awaiting and self._needs_approval(call):
                missing.remove((place, call))
                yield from self._note_if_open(CallReference(event.id, call.id or ""))
        if missing:
            yield from self._write(())
            return (yield from self._use_tools(answer, missing))
        if any(call.awaiting for _, call in calls):
            so_far.is_repeat = True
            return None
        return []

    def _stored(self, places: Sequence[int]) -> Steps[dict[int, SessionEvent]]:
        names = {name: place for place in places if (name := self._id_at(place)) is not None}
        found: dict[str, SessionEvent] = yield Do(lambda s: s.events_by_id(self.session_id, list(names)))
        return {names[name]: event for name, event in found.items()}

    def _settled(self, reference: CallReference) -> Steps[list[_Entry] | None]:
        """An awaited call gets its result, or is given up; the turn goes on when it was the last one open."""
        so_far, opening = self._so_far, self._opening
        event: SessionEvent = yield Do(lambda s: s.get_event(self.session_id, reference.event_id))
        call = next((one for one in event.tool_calls if one.id == reference.call_id), None)
        if call is None:
            raise CallNotAwaitedError(reference.event_id, reference.call_id)
        self.mark = replace(self.mark, branch=event.branch)
        for other in event.tool_calls:
            if other is not call:
                yield from self._note_if_open(CallReference(event.id, other.id or ""))
        view: View = yield Do(lambda s: s.view(self.session_id))
        told = [one for one in view.told_events(event.branch) if not one.synthetic]
        so_far.turn_from = _turn_start(told, event)
        so_far.newest = view.version
        results = [] if opening.result is None else [_Entry(opening.result, must_store=True)]
        if opening.runs:
            results = yield from self._run_approved(event, call, reference)
            if reference in so_far.awaiting:  # it said that its result comes later
                yield from self._write(results, step=TurnStep.END)
                return None
        so_far.settling = Settling(answers=reference) if results else Settling(abandons=reference)
        if so_far.awaiting or any(one.version > event.version and one.role is not Role.TOOL for one in told):
            yield from self._write(results, step=TurnStep.END)
            return None
        return results

    def _run_approved(
        self, event: SessionEvent, call: ToolCallPart, reference: CallReference
    ) -> Steps[list[_Entry]]:
        yield from self._view()
        yield from self._write(())
        is_open: bool = yield Do(partial(_awaits, self.session_id, reference))
        if not is_open:
            raise CallNotAwaitedError(reference.event_id, reference.call_id)
        place = next(place for place, one in enumerate(event.tool_calls) if one is call)
        yield Tell(ToolCallStarted(call))
        yield StartTools((self._job(place, call),))
        outcome: ToolOutcome = yield NextTool()
        assert event.message is not None  # noqa: S101 - it has calls
        entry = yield from self._result_entry(_Entry(event.message, event=event), call, outcome)
        return [] if entry is None else [entry]

    def _note_if_open(self, reference: CallReference) -> Steps[None]:
        is_open: bool = yield Do(partial(_awaits, self.session_id, reference))
        if is_open:
            self._so_far.awaiting.append(reference)


def _awaits(session_id: str, reference: CallReference, sessions: SessionService) -> bool:
    return sessions.awaits(session_id, reference)


def _turn_start(told: Sequence[SessionEvent], event: SessionEvent) -> int:
    """The version of the user message that began the turn of this event."""
    asked = [one.version for one in told if one.role is Role.USER and one.version <= event.version]
    return max(asked, default=event.version)


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


def _finish_reason(message: Message) -> FinishReason | None:
    reason = (message.metadata or {}).get("finish_reason")
    return FinishReason(reason) if reason in list(FinishReason) else None


def _nothing() -> Steps[None]:
    yield from ()
