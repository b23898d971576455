"""What one process does to a store that others use too, at random, and a journal of all that it was told."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from turnlog.application.compacting import OnRace
from turnlog.application.context import event_context
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.compaction import CompactionResult, SummaryRequest
from turnlog.domain.errors import (
    SessionIdUnavailableError,
    SessionNotFoundError,
    StorageError,
    VersionConflictError,
    WriteUncertainError,
)
from turnlog.domain.log import NewEvent, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.query import EventQuery
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SHARED: Mapping[str, str] = {"shared-ada": "ada", "shared-ben": "ben"}
"""Sessions that every process writes to, with whom they belong to."""

BRANCHES = (None, None, None, "a", "a.b")
_REFUSALS = (SessionNotFoundError, SessionIdUnavailableError, VersionConflictError, StorageError)


class WordCount:
    """Costs one token for each word."""

    def estimate(self, message: Message) -> int:
        """The words of the message."""
        return len((message.text or "").split())


class Journal:
    """What this process was told, each line on the disk before the process goes on."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **told: Any) -> None:
        """One line."""
        os.write(self._file, (json.dumps(told) + "\n").encode())
        os.fsync(self._file)


def prepare(env: Mapping[str, str], folder: Path) -> None:
    """The sessions that all share, with an entry in a journal."""
    journal = Journal(folder / "journal-0")
    with service(env) as sessions:
        for name, owner in SHARED.items():
            call = f"0 opened {name}"
            journal.write(call=call, kind="create", session=name, count=1)
            with event_context(correlation_id=call):
                sessions.create(name, metadata={SessionAttributes.PRINCIPAL_NAME: owner})
            journal.write(call=call, wrote=[["", 0]])


def service(env: Mapping[str, str]) -> SessionService:
    """A service with connections of its own."""
    return SessionService(env=dict(env), token_estimator=WordCount())


class Life:
    """One process that writes."""

    def __init__(self, sessions: SessionService, name: str, folder: Path) -> None:
        self._sessions = sessions
        self._name = name
        self._journal = Journal(folder / f"journal-{name}")
        self._random = random.Random(name)
        self._calls = 0
        self._texts = 0
        self._own = f"own-{name}"
        self._kept: list[tuple[str, NewEvent]] = []
        self._principal = self._random.choice(sorted(SHARED.values()))
        self.passes = dict.fromkeys(("recorded", "rebased", "lost", "nothing"), 0)

    def begin(self) -> None:
        """A session of its own."""
        self._create(self._own, timedelta(days=1))

    def go_on_for(self, killed: str, folder: Path) -> None:
        """Ask once more for what another process had no answer to: all of it is stored, or nothing."""
        file = folder / f"journal-{killed}"
        told = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        if told and told[-1].get("ids"):
            session_id = told[-1]["session"]
            events = [NewEvent(message=Message.user(self._text()), id=name) for name in told[-1]["ids"]]
            stored = self._append(events, session_id, new_events=len(events))
            assert len({event.is_repeat for event in stored}) <= 1, "a write is stored by halves"

    def step(self) -> None:
        """One call of any kind."""
        ways: Sequence[tuple[int, Callable[[], object]]] = (
            (6, self._say),
            (4, self._turn),
            (3, self._tool_turn),
            (3, self._parts_of_a_tool_turn),
            (4, self._checked),
            (4, self._repeat),
            (3, self._payload),
            (4, lambda: self._compact(OnRace.SKIP)),
            (4, lambda: self._compact(OnRace.REBASE)),
            (2, lambda: self._compact(OnRace.SKIP, branch="a")),
            (2, self._extend),
            (2, self._describe),
            (2, self._redact),
            (1, self._delete),
            (1, self._sweep),
        )
        weights, calls = zip(*ways, strict=True)
        self._random.choices(calls, weights)[0]()

    # --- appends

    def _say(self) -> None:
        branch = self._random.choice(BRANCHES)
        said = self._random.choice((Message.user, Message.assistant))(self._text())
        self._append([NewEvent(message=said, branch=branch, id=self._id())])

    def _turn(self) -> None:
        ids = [self._id(), None]
        said = (Message.user(self._text()), Message.assistant(self._text()))
        self._append([NewEvent(message=one, id=name) for one, name in zip(said, ids, strict=True)])

    def _tool_turn(self) -> None:
        self._append([NewEvent(message=one, id=self._id()) for one in self._tool_messages()])

    def _parts_of_a_tool_turn(self) -> None:
        """In writes of their own, between which others may write and compact."""
        session_id = self._session()
        for message in self._tool_messages():
            self._append([NewEvent(message=message, id=self._id())], session_id=session_id)

    def _tool_messages(self) -> Sequence[Message]:
        ids = [f"c{self._name}-{self._calls}-{place}" for place in range(2)]
        return (
            Message.user(self._text()),
            Message.assistant([ToolCallPart(id=name, name="find") for name in ids]),
            Message.tool([ToolCallResponsePart(id=ids[1], response=self._text())]),
            Message.tool([ToolCallResponsePart(id=ids[0], response=self._text())]),
            Message.assistant(self._text()),
        )

    def _checked(self) -> None:
        session_id = self._session()
        version = self._sessions.version(session_id) - self._random.choice((0, 0, 0, 1))
        stored = self._append(
            [NewEvent(message=Message.user(self._text()), id=self._id())],
            session_id,
            expected_version=version,
        )
        assert all(event.version == version + 1 for event in stored)

    def _repeat(self) -> None:
        """An event that this process was told is stored, once more, with something new behind it."""
        if not self._kept:
            return
        session_id, event = self._random.choice(self._kept)
        new = NewEvent(message=Message.user(self._text()), id=self._id())
        stored = self._append([event, new], session_id, new_events=1)
        if stored:
            assert [one.is_repeat for one in stored] == [True, False], "it was acknowledged before"

    def _payload(self) -> None:
        session_id = self._session()
        with self._call("append", session_id, 1) as done:
            event = self._sessions.append_event(session_id, "ACME.AUDIT", {"by": self._name})
            done([event])

    def _append(
        self,
        events: Sequence[NewEvent],
        session_id: str | None = None,
        *,
        expected_version: int | None = None,
        new_events: int | None = None,
    ) -> Sequence[SessionEvent]:
        session_id = session_id or self._session()
        stored: Sequence[SessionEvent] = ()
        ids = [event.id for event in events] if new_events is None else []
        with self._call("append", session_id, new_events or len(events), ids) as done:
            stored = self._sessions.append_events(session_id, events, expected_version=expected_version)
            done([event for event in stored if not event.is_repeat])
            self._kept += ((session_id, event) for event in events if event.id)
        return stored

    # --- passes

    def _compact(self, on_race: OnRace, branch: str | None = None) -> None:
        session_id = self._random.choice((*SHARED, self._own))
        window = CompactionWindow.last_turns(self._random.randint(1, 3))
        summarizer = self if self._random.random() < 0.7 else None
        strategy = WindowCompactionStrategy(window, summarizer)
        result: CompactionResult | None = None
        self._disturbed = session_id if self._random.random() < 0.4 else None
        with self._call("compact", session_id, 0) as done:
            result = self._sessions.compact(session_id, None, strategy, branch=branch, on_race=on_race)
            written = () if result.boundary is None else (result.boundary, *result.summary_events)
            done(written)
        if result is None:
            return
        kind = "nothing" if result.is_unchanged else "recorded"
        if self._disturbed and summarizer:
            kind = "lost" if result.is_unchanged else "rebased"
        self.passes[kind] += 1

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:  # noqa: ARG002 - the port's argument
        """A summary of this process, which may say something itself before it answers."""
        if self._disturbed is not None:
            self._append([NewEvent(message=Message.user(self._text()), id=self._id())], self._disturbed)
        return (Message.user(self._text()), Message.assistant(self._text()))

    # --- the rest of a session's life

    def _create(self, session_id: str, time_to_live: timedelta, kind: str = "create") -> None:
        with self._call(kind, session_id, 1) as done:
            owner = {SessionAttributes.PRINCIPAL_NAME: self._principal}
            self._sessions.create(session_id, metadata=owner, time_to_live=time_to_live)
            done([("", 0)])

    def _extend(self) -> None:
        session_id = self._session()
        with self._call("extend", session_id, 1) as done:
            expiry = datetime.now(UTC) + timedelta(days=self._random.randint(2, 9))
            done([("", self._sessions.extend(session_id, expiry))])

    def _describe(self) -> None:
        metadata = {SessionAttributes.PRINCIPAL_NAME: self._principal, "title": self._text()}
        with self._call("describe", self._own, 1) as done:
            done([("", self._sessions.update_metadata(self._own, metadata))])

    def _redact(self) -> None:
        mine = [event for session_id, event in self._kept if session_id == self._own]
        if mine:
            named = self._random.choice(mine).id
            assert named is not None
            with self._call("redact", self._own, 1) as done:
                redaction = self._sessions.redact(self._own, named, reason="asked for", by=self._name)
                at = self._sessions.get_event(self._own, redaction.version)
                done([] if redaction.is_repeat else [at])

    def _delete(self) -> None:
        """End the session of its own, and begin another."""
        old, self._own = self._own, f"own-{self._name}-{self._calls}"
        with self._call("delete", old, 1) as done:
            self._sessions.delete(old)
            done([])
        self._kept = [one for one in self._kept if one[0] != old]
        self._create(self._own, timedelta(days=1))

    def _sweep(self) -> None:
        """A session that is over when it begins, and a sweep, at which others may be too."""
        self._create(f"short-{self._name}-{self._calls}", timedelta(0), kind="short")
        self._journal.write(call=self._next_call(), kind="sweep", session="", count=0)
        with suppress(StorageError):
            self._sessions.delete_expired(datetime.now(UTC))
            self._sessions.sweep()

    # --- how a call is made

    def _call(self, kind: str, session_id: str, count: int, ids: Sequence[str | None] = ()) -> _Call:
        """A call that writes so many events if it writes any; `ids` where it can be asked for again."""
        call = self._next_call()
        given = [one for one in ids if one is not None] if None not in ids else []
        self._journal.write(call=call, kind=kind, session=session_id, count=count, ids=given)
        return _Call(self._journal, call)

    def _next_call(self) -> str:
        self._calls += 1
        return f"{self._name} {self._calls}"

    def _session(self) -> str:
        return self._random.choice((*SHARED, *SHARED, self._own))

    def _id(self) -> str:
        self._texts += 1
        return f"e{self._name}-{self._texts}"

    def _text(self) -> str:
        self._texts += 1
        word = f"word{self._name}x{self._texts}y"
        return f"{word} \0 Grüße \ud800" if self._random.random() < 0.1 else f"{word} of {self._name}"


class _Call:
    """One call under its own name in the context; what it is told goes into the journal."""

    def __init__(self, journal: Journal, call: str) -> None:
        self._journal = journal
        self._call = call
        self._context = event_context(correlation_id=call)

    def __enter__(self) -> Callable[[Sequence[SessionEvent | tuple[str, int]]], None]:
        self._context.__enter__()
        return self._done

    def _done(self, written: Sequence[SessionEvent | tuple[str, int]]) -> None:
        wrote = [one if isinstance(one, tuple) else (one.id, one.version) for one in written]
        self._journal.write(call=self._call, wrote=wrote)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        self._context.__exit__(None, None, None)
        if not isinstance(error, _REFUSALS):
            return False
        self._journal.write(
            call=self._call, why=type(error).__name__, uncertain=isinstance(error, WriteUncertainError)
        )
        return True


def found_by_search(sessions: SessionService, word: str | None = None) -> list[tuple[str, int]]:
    """Where a word was said, or anything, as a search over all sessions answers."""
    query = EventQuery(keywords=() if word is None else word)
    return [(event.session_id, event.version) for event in sessions.search_all(query)]
