"""A turn and its session: reading the view, and storing messages together with the turn's mark."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence

from turnlog.application.chat.asking import Aside
from turnlog.application.chat.errors import (
    TurnTakenOverError,
)
from turnlog.application.chat.ids import id_in_turn
from turnlog.application.chat.model import Rendering
from turnlog.application.chat.progress import Entry, Opening, OvertakenError, Progress
from turnlog.application.chat.recording import ModelCall, unstored
from turnlog.application.chat.settings import ChatSettings
from turnlog.application.chat.steps import (
    Do,
    Pause,
    Steps,
    Tell,
)
from turnlog.application.chat.turn import (
    MessageStored,
)
from turnlog.application.service import SessionService
from turnlog.application.turns import TurnMark, TurnStep, TurnWrite
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import (
    SessionNotFoundError,
    TurnInProgressError,
)
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, Role
from turnlog.domain.state import AwaitedCall
from turnlog.domain.view import View

_logger = logging.getLogger("turnlog")


class Storing:
    """What a turn reads of its session, and how it writes."""

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
        self.mark = TurnMark(secrets.token_hex(10), opening.branch, settings.lease)
        self.turn_id = self.mark.turn_id if key is None else id_in_turn(opening.session_id, key, "turn")
        self._so_far = Progress(limit=settings.max_request_tokens)
        self._call: ModelCall | None = None

    @property
    def session_id(self) -> str:
        """The session of the turn."""
        return self._opening.session_id

    @property
    def is_marked(self) -> bool:
        """Whether the turn holds its mark, which has to be renewed."""
        return self._so_far.is_marked

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
                if self._opening.settles is not None or self._opening.resumes or self._so_far.entries:
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
        entries: Sequence[Entry],
        beside: Sequence[NewEvent] = (),
        step: TurnStep = TurnStep.GO_ON,
        *,
        expected: int | None = None,
    ) -> Steps[tuple[AwaitedCall, ...]]:
        """Store the messages and what belongs to them, and mark the turn, in one write.

        Returns the calls that await a result behind the write.
        """
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
            return write.awaited
        self._note_asides(entries)
        return ()

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

    def _note(self, entry: Entry, event: SessionEvent) -> None:
        entry.event = event
        entry.message = event.message or entry.message
        self._so_far.newest = max(self._so_far.newest, event.version)
        if self._so_far.turn_from is None:
            self._so_far.turn_from = event.version
        if entry not in self._so_far.entries:
            self._so_far.entries.append(entry)

    def _note_asides(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.event is None:
                said = unstored(entry.message, branch=self.mark.branch)
                self._so_far.asides.append(Aside(self._so_far.newest, said))
                self._so_far.entries.append(entry)

    def _new_event(self, entry: Entry) -> NewEvent:
        return NewEvent(message=entry.message, id=self._id_at(entry.place), branch=self.mark.branch)

    def _id_at(self, place: int) -> str | None:
        key = self._opening.key
        return None if key is None else id_in_turn(self.session_id, key, place)

    def _stored(self, places: Sequence[int]) -> Steps[dict[int, SessionEvent]]:
        """What is stored under the key of the turn, by place in it."""
        names = {name: place for place in places if (name := self._id_at(place)) is not None}
        if not names:
            return {}
        found: dict[str, SessionEvent] = yield Do(lambda s: s.events_by_id(self.session_id, list(names)))
        return {names[name]: event for name, event in found.items()}

    def _refuse_overtaken(self, pending: Sequence[Entry], view: View) -> Steps[None]:
        """Begin anew when somebody went on with the same turn in between: what is next is stored by now."""
        so_far = self._so_far
        if so_far.is_marked or so_far.known_until is None or so_far.known_until == view.version:
            return
        if (yield from self._stored([*(entry.place for entry in pending), so_far.place])):
            raise OvertakenError
        if so_far.newest >= 0 and self._is_said_behind(so_far.known_until, view):
            raise OvertakenError
        so_far.known_until = view.version

    def _is_said_behind(self, version: int, view: View) -> bool:
        """Whether the conversation of the branch went on behind a version."""
        branch = self.mark.branch
        own = (one for one in view.told_events(branch) if one.branch == branch and not one.synthetic)
        return any(one.version > version and one.role is not Role.SYSTEM for one in own)

    def _keeps(self, entry: Entry) -> bool:
        return entry.must_store or self._settings.store is None or self._settings.store.keeps(entry.message)

    def _end(self) -> Steps[None]:
        """Take the mark away, so that the next turn can begin; failing at it must not hide what happened."""
        if not self._so_far.is_marked:
            return
        self._so_far.settling = None  # nothing is settled without what settles it
        try:
            yield from self._write((), (), TurnStep.END)
        except Exception as error:
            _logger.warning("The mark of a turn stays until it expires: %s.", type(error).__name__)
