"""One turn as a generator that decides and does nothing itself.

It yields what is to be done next and receives the result; what failed is thrown into it. The sync chat and
the one for asyncio carry the steps out, so that no rule of a turn exists twice.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from turnlog.application.chat.errors import (
    MessageTooLargeError,
    ModelError,
)
from turnlog.application.chat.model import FinishReason
from turnlog.application.chat.progress import Entry, OvertakenError, Progress
from turnlog.application.chat.resuming import Resuming
from turnlog.application.chat.steps import (
    Steps,
    Tell,
    TurnCutError,
)
from turnlog.application.chat.turn import (
    Turn,
    TurnFinished,
    total,
)

HOW_TO_GO_ON: Final = (
    "What was said is stored. `resume(session_id)` of the chat asks again; `send` would say it twice, unless "
    "both calls have the same idempotency_key."
)
"""A note on what a model raised in a turn."""


class TurnEngine(Resuming):
    """The rules of one turn."""

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
        except BaseException as error:
            yield from self._end()
            if isinstance(error, ModelError) and self._so_far.entries:
                _note_on(error, HOW_TO_GO_ON)
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
            except OvertakenError:
                self._so_far = Progress(limit=self._settings.max_request_tokens, waited=self._so_far.waited)

    def _opened(self) -> Steps[list[Entry] | None]:
        """The messages that lead to the first request; None when there is nothing to be asked."""
        if self._opening.settles is not None:
            return (yield from self._settled(self._opening.settles))
        if self._opening.resumes:
            return (yield from self._gone_on())
        view = yield from self._view()
        if self._opening.key is not None:
            return (yield from self._resumed(view.version))
        return [self._opening_entry()]

    def _rounds(self, pending: list[Entry]) -> Steps[None]:
        while True:
            reply = yield from self._answer(pending)
            answer, calls = yield from self._store_answer(reply)
            found = yield from self._use_tools(answer, calls) if calls else _nothing()
            if found is None:
                return
            pending = found

    def _refuse_too_large(self) -> None:
        limit = self._settings.max_message_tokens
        for message in (self._opening.message, self._opening.result):
            if limit is not None and message is not None and (tokens := self._count(message)) > limit:
                raise MessageTooLargeError(tokens, limit)

    def _result(self) -> Turn:
        so_far = self._so_far
        return Turn(
            session_id=self.session_id,
            turn_id=self.turn_id,
            messages=tuple(entry.message for entry in so_far.entries),
            events=tuple(entry.event for entry in so_far.entries if entry.event),
            finish_reason=so_far.finish_reason,
            usage=total(so_far.usages),
            compaction=so_far.compaction,
            compaction_error=so_far.compaction_error,
            awaiting=tuple(so_far.awaiting),
            is_repeat=so_far.is_repeat,
        )


def _note_on(error: Exception, note: str) -> None:
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _nothing() -> Steps[None]:
    yield from ()
