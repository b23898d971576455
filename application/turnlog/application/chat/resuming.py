"""Turns that began before: under a key of the caller's, or with a call that awaited its result."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from turnlog.application.chat.errors import NothingToResumeError
from turnlog.application.chat.model import FinishReason
from turnlog.application.chat.progress import Entry, OvertakenError, Settling
from turnlog.application.chat.running import ToolOutcome
from turnlog.application.chat.steps import (
    Do,
    NextTool,
    StartTools,
    Steps,
    Tell,
)
from turnlog.application.chat.tool_rounds import ToolRounds
from turnlog.application.chat.turn import (
    ToolCallStarted,
)
from turnlog.application.chat.usage import Usage
from turnlog.application.turns import CallReference, TurnStep, call_name
from turnlog.domain.errors import (
    CallNotAwaitedError,
    TurnInProgressError,
    VersionConflictError,
)
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallPart
from turnlog.domain.view import View

CUT = (FinishReason.CANCELLED, FinishReason.ERROR)
"""How answers end that are not whole."""

_BESIDE = (Role.SYSTEM, Role.TOOL)
"""Roles of messages with which a conversation does not go on behind a call."""


class Resuming(ToolRounds):
    """How a turn goes on where it ended."""

    def _opening_entry(self) -> Entry:
        assert self._opening.message is not None  # noqa: S101 - a turn that settles no call has one
        self._so_far.place = 1
        return Entry(self._opening.message, 0)

    def _resumed(self, version: int) -> Steps[list[Entry] | None]:
        """What of this key is stored already, up to a version; what is missing is done, and nothing twice."""
        self._so_far.known_until = version
        first = yield from self._stored([0, 1])
        entry = self._opening_entry()
        if not first:
            return [entry]
        newest = first[min(first)]
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
                return (yield from self._resumed_without_key(newest, version))
            newest = answer
            pending = yield from self._resumed_behind(answer, answer.message, version)
            if pending is None or pending:
                return pending

    def _resumed_without_key(self, newest: SessionEvent, version: int) -> Steps[list[Entry] | None]:
        """What is missing where no answer behind this message has the key: it may have gone on without."""
        rest, is_newest = yield from self._rest_behind(newest, version)
        if not any(one.role is Role.ASSISTANT for one in rest):
            return []
        answer = (
            Entry(newest.message, event=newest) if newest.message and newest.role is Role.ASSISTANT else None
        )
        return (yield from self._went_on(rest, answer, version, is_newest=is_newest))

    def _rest_behind(self, event: SessionEvent, version: int) -> Steps[tuple[list[SessionEvent], bool]]:
        """What followed on the message in its turn and is not noted yet; and whether none was said since."""
        rest, is_newest = yield Do(lambda s: s.rest_of_turn(self.session_id, event.id, at_version=version))
        noted = {entry.event.version for entry in self._so_far.entries if entry.event}
        return [one for one in rest if one.version not in noted], is_newest

    def _gone_on(self) -> Steps[list[Entry] | None]:
        """What is missing behind the newest question of the branch; None when it has its answer."""
        view = yield from self._view()
        self._so_far.known_until = view.version
        branch = self.mark.branch
        own = [one for one in view.told_events(branch) if one.branch == branch and not one.synthetic]
        begins = max((place for place, one in enumerate(own) if one.role is Role.USER), default=None)
        if begins is None:
            raise NothingToResumeError(self.session_id)
        turn = [one for one in own[begins:] if one.role is not Role.SYSTEM]
        return (yield from self._went_on(turn, None, view.version))

    def _went_on(
        self, turn: Sequence[SessionEvent], answer: Entry | None, version: int, *, is_newest: bool = True
    ) -> Steps[list[Entry] | None]:
        """What is missing behind these messages of a turn, which are stored; nothing (None) when somebody has
        said something else meanwhile. The answer is the one before them, which has its results."""
        so_far = self._so_far
        missing: list[tuple[int, ToolCallPart]] = []
        for event in turn:
            assert event.message is not None  # noqa: S101 - these are messages
            entry = Entry(event.message, so_far.place)
            self._note(entry, event)
            missing = _unanswered(missing, event.message)
            if event.role is Role.ASSISTANT:
                answer, missing = entry, self._noted_answer(event.message)
        if answer is None:
            return []
        if not is_newest or not answer.message.tool_calls or so_far.finish_reason in CUT:
            so_far.is_repeat = True
            return None
        for call in answer.message.tool_calls:
            if call.awaiting and answer.event is not None:
                yield from self._note_if_open(CallReference.of(answer.event.id, call))
        missing = [(place, call) for place, call in missing if not call.awaiting]
        return (yield from self._made_up_for(answer, missing, version))

    def _resumed_behind(
        self, event: SessionEvent, message: Message, version: int
    ) -> Steps[list[Entry] | None]:
        """What is to be done behind a stored answer: nothing (None), a request, or to look further ([])."""
        so_far = self._so_far
        answer = Entry(message, so_far.place)
        self._note(answer, event)
        calls = self._noted_answer(message)
        if not calls or so_far.finish_reason in CUT:
            so_far.is_repeat = True
            return None
        results = yield from self._stored([answer.place + 1 + place for place, _ in calls])
        left = [(place, call) for place, call in calls if answer.place + 1 + place not in results]
        rest: list[SessionEvent] = []
        is_newest = True
        if left or _awaited(message):
            rest, is_newest = yield from self._rest_behind(event, version)
        behind = list(itertools.takewhile(lambda one: one.role is Role.TOOL, rest))
        for one in behind:
            if one not in results.values():
                left = _unanswered(left, one.message)
        went_on = len(behind) < len(rest)
        missing: list[tuple[int, ToolCallPart]] = []
        for place, call in calls:
            has_result = (place, call) not in left
            reference = CallReference.of(event.id, call)
            is_open = call.awaiting and (yield from self._is_open(reference))
            if is_open and (has_result or self._needs_approval(call)):
                so_far.awaiting.append(reference)
            elif not (has_result or went_on) and (is_open or not call.awaiting):  # was it made? nobody knows
                missing.append((place, call))
        if not missing and not so_far.awaiting and (rest or _awaited(message)):
            turn = _in_order(results.values(), rest)
            return (yield from self._went_on(turn, answer, version, is_newest=is_newest))
        for one in _in_order(results.values(), behind):
            if one.message is not None:
                self._note(Entry(one.message, so_far.place), one)
        return (yield from self._made_up_for(answer, missing, version))

    def _noted_answer(self, message: Message) -> list[tuple[int, ToolCallPart]]:
        """Count a stored answer in; returns its calls with their places."""
        so_far = self._so_far
        so_far.finish_reason = _finish_reason(message)
        so_far.usages += [usage] if (usage := Usage.of(message)) else []
        so_far.rounds += bool(message.tool_calls)
        so_far.place += 1 + len(message.tool_calls)
        return list(enumerate(message.tool_calls))

    def _made_up_for(
        self, answer: Entry, missing: Sequence[tuple[int, ToolCallPart]], version: int
    ) -> Steps[list[Entry] | None]:
        """Make the calls of a stored answer that have no result, then go on unless one is awaited."""
        so_far = self._so_far
        if so_far.awaiting and not missing:
            so_far.is_repeat = True
            return None
        if missing or _awaited(answer.message):
            try:
                yield from self._write((), expected=version)
            except (TurnInProgressError, VersionConflictError):
                raise OvertakenError from None  # what is missing may be there by now
        return (yield from self._use_tools(answer, missing)) if missing else []

    def _settled(self, reference: CallReference) -> Steps[list[Entry] | None]:
        """An awaited call gets its result, or is given up; the turn goes on when it was the last one open."""
        so_far, opening = self._so_far, self._opening
        event: SessionEvent = yield Do(lambda s: s.get_event(self.session_id, reference.event_id))
        call = next((one for one in event.tool_calls if one.id == reference.call_id), None)
        if call is None:
            raise CallNotAwaitedError(reference.event_id, reference.call_id)
        self.mark = replace(self.mark, branch=event.branch)
        for other in event.tool_calls:
            if other is not call:
                yield from self._note_if_open(CallReference.of(event.id, other))
        view: View = yield Do(lambda s: s.view(self.session_id))
        told = [one for one in view.told_events(event.branch) if not one.synthetic]
        so_far.turn_from = _turn_start(told, event)
        so_far.newest = so_far.known_until = view.version
        went_on = _has_gone_on(told, event)
        if opening.runs or opening.result is not None:
            is_open = yield from self._is_open(reference)
            if not is_open and not went_on and not so_far.awaiting and _is_answered(told, event, call):
                left_over = yield from self._left_over(event)  # it came in before; then the turn broke off
                if left_over is None and not so_far.entries:  # and something else was said
                    raise CallNotAwaitedError(reference.event_id, reference.call_id)
                return left_over
        results = [] if opening.result is None else [Entry(opening.result, must_store=True)]
        if opening.runs:
            results = yield from self._run_approved(event, call, reference)
            if reference in so_far.awaiting:  # it said that its result comes later
                yield from self._write(results, step=TurnStep.END)
                return None
        so_far.settling = Settling(answers=reference) if results else Settling(abandons=reference)
        if not so_far.awaiting and not went_on and not _without_result(told, event):
            return results
        awaited = yield from self._write(results, step=TurnStep.END)
        left = {call.call_id for call in awaited if call.version == event.version}
        so_far.awaiting = [other for other in so_far.awaiting if call_name(other.call_id) in left]
        return None if left or went_on else (yield from self._left_over(event))

    def _left_over(self, event: SessionEvent) -> Steps[list[Entry] | None]:
        """What leads to the next request behind an answer of which no call is open any more: results of those
        calls that awaited none, and that were not made before their turn broke off. Of an answer
        that somebody else got meanwhile the turn is a repeat; None where another turn was begun."""
        assert event.message is not None  # noqa: S101 - it has calls
        answer = Entry(event.message, event=event)
        while True:
            view = yield from self._view()
            told = [one for one in view.told_events(event.branch) if not one.synthetic]
            if _has_gone_on(told, event):
                rest, is_newest = yield from self._rest_behind(event, view.version)
                if not any(one.role is Role.ASSISTANT for one in rest):
                    return None
                return (yield from self._went_on(rest, answer, view.version, is_newest=is_newest))
            with suppress(TurnInProgressError, VersionConflictError):
                yield from self._write((), expected=view.version)
                break
        missing = _without_result(told, event)
        return (yield from self._use_tools(answer, missing)) if missing else []

    def _run_approved(
        self, event: SessionEvent, call: ToolCallPart, reference: CallReference
    ) -> Steps[list[Entry]]:
        yield from self._begun()
        if not (yield from self._is_open(reference)):
            raise CallNotAwaitedError(reference.event_id, reference.call_id)
        place = next(place for place, one in enumerate(event.tool_calls) if one is call)
        yield Tell(ToolCallStarted(call))
        yield StartTools((self._job(place, call),))
        outcome: ToolOutcome = yield NextTool()
        assert event.message is not None  # noqa: S101 - it has calls
        entry = yield from self._result_entry(Entry(event.message, event=event), call, outcome)
        return [] if entry is None else [entry]

    def _begun(self) -> Steps[None]:
        """Mark the turn before anything of it is stored. Waits as long as a turn waits for another."""
        while True:
            yield from self._view()
            with suppress(TurnInProgressError):  # it began meanwhile
                yield from self._write(())
                return

    def _note_if_open(self, reference: CallReference) -> Steps[None]:
        if (yield from self._is_open(reference)):
            self._so_far.awaiting.append(reference)

    def _is_open(self, reference: CallReference) -> Steps[bool]:
        is_open: bool = yield Do(lambda s: s.awaits(self.session_id, reference))
        return is_open


def _awaited(message: Message) -> bool:
    """Whether a call of the answer was open when it was stored."""
    return any(call.awaiting for call in message.tool_calls)


def _in_order(*events: Iterable[SessionEvent]) -> list[SessionEvent]:
    """These events as the log has them, each once."""
    found = {event.version: event for event in itertools.chain(*events)}
    return [found[version] for version in sorted(found)]


def _unanswered(
    calls: Sequence[tuple[int, ToolCallPart]], message: Message | None
) -> list[tuple[int, ToolCallPart]]:
    """Those of the calls to which this message has no result. Calls may share an id, or have none."""
    left = list(calls)
    for response in message.tool_responses if message else ():
        named = (one for one in left if one[1].id == response.id and response.name in (None, one[1].name))
        found = None if response.provisional else next(named, None)
        if found is not None:
            left.remove(found)
    return left


def _is_answered(told: Sequence[SessionEvent], event: SessionEvent, call: ToolCallPart) -> bool:
    """Whether a final result of the call stands behind its event."""
    behind = (one.message for one in told if one.version > event.version and one.message)
    responses = (response for message in behind for response in message.tool_responses)
    return any(response.id == call.id and not response.provisional for response in responses)


def _has_gone_on(told: Sequence[SessionEvent], event: SessionEvent) -> bool:
    """Whether the conversation went on behind the event."""
    return any(one.version > event.version and one.role not in _BESIDE for one in told)


def _without_result(told: Sequence[SessionEvent], event: SessionEvent) -> list[tuple[int, ToolCallPart]]:
    """The calls of the event that await nothing and have no result behind it, with their places."""
    missing = [(place, call) for place, call in enumerate(event.tool_calls) if not call.awaiting]
    for one in told:
        if one.version > event.version:
            missing = _unanswered(missing, one.message)
    return missing


def _turn_start(told: Sequence[SessionEvent], event: SessionEvent) -> int:
    """The version of the user message that began the turn of this event."""
    asked = [one.version for one in told if one.role is Role.USER and one.version <= event.version]
    return max(asked, default=event.version)


def _finish_reason(message: Message) -> FinishReason | None:
    reason = (message.metadata or {}).get("finish_reason")
    return FinishReason(reason) if reason in list(FinishReason) else None
