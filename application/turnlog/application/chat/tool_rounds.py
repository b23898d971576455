"""A turn and its tools: storing an answer, making its calls, and storing each result as it comes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from turnlog.application.chat.errors import (
    TooManyRoundsError,
)
from turnlog.application.chat.model import ChatReply
from turnlog.application.chat.progress import Entry
from turnlog.application.chat.recording import as_events
from turnlog.application.chat.requesting import Requesting
from turnlog.application.chat.running import ToolJob, ToolOutcome, prepared
from turnlog.application.chat.steps import (
    NextTool,
    StartTools,
    Steps,
    Tell,
)
from turnlog.application.chat.tools import ToolContext
from turnlog.application.chat.turn import (
    ToolCallFinished,
    ToolCallStarted,
)
from turnlog.application.turns import CallReference, TurnStep
from turnlog.domain.messages import AnyPart, Message, ToolCallPart


class ToolRounds(Requesting):
    """How a turn makes the calls of an answer."""

    def _store_answer(self, reply: ChatReply) -> Steps[tuple[Entry, list[tuple[int, ToolCallPart]]]]:
        """Store the answer; returns it and the calls that are to be made now, with their places."""
        so_far = self._so_far
        message = self._marked(reply.message)
        answer = Entry(message, so_far.place, must_store=any(call.awaiting for call in message.tool_calls))
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
            CallReference.of(answer.event.id, call)
            for call in message.tool_calls
            if answer.event and self._needs_approval(call)
        )
        return answer, runs

    def _marked(self, message: Message) -> Message:
        """The answer with those of its calls marked as awaiting whose results may come later.

        They are settled by their ids, so one that has none of its own gets one.
        """
        ids = [call.id for call in message.tool_calls]
        if not any(self._may_wait(call) for call in message.tool_calls):
            return message
        parts: list[AnyPart] = []
        for part in message.parts:
            if isinstance(part, ToolCallPart) and self._may_wait(part):
                own_id = part.id if part.id and ids.count(part.id) == 1 else f"call_{secrets.token_hex(6)}"
                parts.append(part.model_copy(update={"awaiting": True, "id": own_id}))
            else:
                parts.append(part)
        return message.model_copy(update={"parts": tuple(parts)})

    def _may_wait(self, call: ToolCallPart) -> bool:
        tool = self._settings.tools.find(call.name)
        return tool is not None and (tool.needs_approval or tool.awaits)

    def _needs_approval(self, call: ToolCallPart) -> bool:
        tool = self._settings.tools.find(call.name)
        return tool is not None and tool.needs_approval

    def _use_tools(
        self, answer: Entry, calls: Sequence[tuple[int, ToolCallPart]]
    ) -> Steps[list[Entry] | None]:
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

    def _result_entry(self, answer: Entry, call: ToolCallPart, outcome: ToolOutcome) -> Steps[Entry | None]:
        """The result as a message; none of a call that waits and has nothing to say in the meantime."""
        if outcome.awaiting is not None and answer.event is not None:
            self._so_far.awaiting.append(CallReference.of(answer.event.id, call))
        entry: Entry | None = None
        if outcome.awaiting is None or outcome.awaiting.note:
            message = self._fitting(outcome, call)
            place = answer.place + 1 + outcome.place
            entry = Entry(message, place, must_store=call.awaiting)
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
