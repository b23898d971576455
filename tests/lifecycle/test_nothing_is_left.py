"""After a delete or a redaction no byte of the content is in the SQLite file, its log or the index."""

from __future__ import annotations

import json
import random
import re
import string
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from eventsourcing.sqlite import SQLiteConnection, SQLiteConnectionPool
from tests.support.conformance_stores import NoTokens

from turnlog.application.audit import SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.log import EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.query import EventQuery
from turnlog.domain.session import Session
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SEEDS = range(10)
SESSIONS = 50
BEGIN = datetime(2026, 5, 1, 8, tzinfo=UTC)
WORD = 12
"""Letters of a word: long enough that none occurs by chance."""

SIZES = (1, 4, 30, 120, 400)
"""Words of a text: a row, a page, several pages."""

READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
print("ready", flush=True)
for command in sys.stdin:
    if command.strip() == "hold":
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM stored_events").fetchone()
    elif command.strip() == "leave":
        connection.execute("ROLLBACK")
    else:
        connection.execute("SELECT count(*) FROM stored_events").fetchone()
    print("done", flush=True)
"""


@dataclass
class Told:
    """What one session was told: words that occur nowhere else."""

    id: str
    dice: random.Random
    words: set[str] = field(default_factory=set[str])

    def word(self) -> str:
        word = "".join(self.dice.choices(string.ascii_letters, k=WORD))
        self.words.add(word)
        return word

    def text(self) -> str:
        return " ".join(self.word() for _ in range(self.dice.choice(SIZES)))

    def left_in(self, path: Path, words: set[str] | None = None) -> set[str]:
        """The words, or these of them, that are found in the files of the database."""
        return (self.words if words is None else words) & runs_in(path)


def runs_in(path: Path) -> set[str]:
    """All that stands in the files of the database and could be a word."""
    files = (path.with_name(path.name + end) for end in ("", "-wal", "-journal"))
    found = b"\n".join(file.read_bytes() for file in files if file.exists())
    runs = (match.group().decode() for match in re.finditer(rb"[A-Za-z]{%d,}" % WORD, found))
    return {run[at : at + WORD] for run in runs for at in range(len(run) - WORD + 1)}


def any_left_in(path: Path, tolds: Iterable[Told]) -> set[str]:
    """The words of all these sessions that are found."""
    return set[str]().union(*(told.words for told in tolds)) & runs_in(path)


class Reader:
    """Another process that reads the database."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._answer()

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline()


@contextmanager
def reading(path: Path) -> Generator[Reader]:
    with closing(Reader(path)) as reader:
        yield reader


def service(path: Path, **env: str) -> SessionService:
    return SessionService(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path), **env},
        token_estimator=NoTokens(),
    )


def something_said(told: Told) -> NewEvent:
    match told.dice.randrange(4):
        case 0:
            return NewEvent(message=Message.user(told.text()))
        case 1:
            call = ToolCallPart(id=told.word(), name="find", arguments=json.dumps({"query": told.text()}))
            return NewEvent(message=Message.assistant([call], metadata={"note": told.word()}))
        case 2:
            return NewEvent(type=EventType.of("ACME.AUDIT"), payload={"text": told.text()})
        case _:
            return NewEvent(message=Message.assistant(told.text()), id=f"given-{told.dice.random()}")


@dataclass
class Recap:
    """A summarizer that makes up words."""

    told: Told

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:  # noqa: ARG002 - the port's argument
        return [Message.user(self.told.text()), Message.assistant(self.told.text())]


def live(sessions: SessionService, told: Told) -> None:
    """Something happens to the session."""
    match told.dice.randrange(12):
        case 0 | 1:
            metadata = {"title": told.text(), told.word(): told.dice.random()}
            sessions.update_metadata(told.id, metadata, context={"actor": told.word()})
        case 2:
            placed_at = sessions.hold(told.id, told.text(), by=told.word())
            sessions.release(told.id, placed_at, by=told.word())
        case 3:
            sessions.compact(
                told.id, None, WindowCompactionStrategy(CompactionWindow.last_turns(1), Recap(told))
            )
        case _:
            sessions.append_events(told.id, [something_said(told) for _ in range(told.dice.randrange(1, 6))])


def interleaved(services: Sequence[SessionService], seed: int) -> list[Told]:
    """Fifty sessions that were told things in turns, by several services."""
    dice = random.Random(seed)
    tolds = [Told(f"session-{number}", random.Random(dice.random())) for number in range(SESSIONS)]
    for told in tolds:
        services[0].create(told.id, metadata={"title": told.text()} if dice.random() < 0.7 else None)
    for _ in range(SESSIONS * 4):
        live(dice.choice(services), dice.choice(tolds))
    return tolds


WITHOUT_ROWS = {"APPLICATION_RECORDER_TOPIC": "eventsourcing.sqlite:SQLiteApplicationRecorder"}
"""The framework's own recorder, whose connections do not delete securely."""


@pytest.fixture(autouse=True)
def insecure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of the framework as they are where SQLite was not built to delete securely."""
    connect = SQLiteConnectionPool._create_connection  # pyright: ignore[reportPrivateUsage] # where they are made

    def create(pool: SQLiteConnectionPool) -> SQLiteConnection:
        connection = connect(pool)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(SQLiteConnectionPool, "_create_connection", create)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_word_of_a_deleted_session_is_left(path: Path, seed: int) -> None:
    with service(path) as one, service(path) as two, reading(path) as reader:
        tolds = interleaved([one, two], seed)
        reader.tell("read")
        random.Random(seed).shuffle(tolds)
        left: dict[str, set[str]] = {}
        for told in tolds[:15]:
            assert one.delete(told.id).erasure == "done"
            left[told.id] = told.left_in(path)
        assert left == {told.id: set() for told in tolds[:15]}


@pytest.mark.parametrize("seed", range(4))
def test_no_word_is_left_where_the_recorder_writes_no_rows(path: Path, seed: int) -> None:
    with service(path, **WITHOUT_ROWS) as one, service(path, **WITHOUT_ROWS) as two, reading(path) as reader:
        tolds = interleaved([one, two], seed)
        reader.tell("read")
        assert len(one.list_sessions(limit=100)) == SESSIONS
        one.search_all(EventQuery(keywords="heron"))
        early, others = tolds[:6], tolds[6:]
        random.Random(seed).shuffle(others)
        left: dict[str, set[str]] = {}
        for told in [*others[:5], *early, others[6]]:
            deletion = two.delete(told.id)
            assert (deletion.erasure, deletion.reason) == ("done", None)
            left[told.id] = told.left_in(path)
        assert left == {session_id: set() for session_id in left}


def told_a_little(sessions: SessionService, seed: int) -> list[Told]:
    """Fifty expired sessions that were told a few words in turns, so that many of them share each page."""
    dice = random.Random(seed)
    tolds = [Told(f"session-{number}", random.Random(dice.random())) for number in range(SESSIONS)]
    streams = [Session.open(told.id, now=BEGIN, expires_at=BEGIN) for told in tolds]
    sessions.app.save(*streams)
    for number in range(25):
        for told, stream in zip(tolds, streams, strict=True):
            for place in range(told.dice.randrange(5)):
                said = NewEvent(
                    message=Message.user(" ".join(told.word() for _ in range(dice.choice((2, 9, 60)))))
                )
                stream.append(said, event_id=f"{number}-{place}", now=BEGIN)
        sessions.app.save(*streams)
    return tolds


@pytest.mark.parametrize("seed", range(2))
def test_no_word_is_left_when_others_were_purged_before(path: Path, seed: int) -> None:
    with service(path) as sessions:
        tolds = told_a_little(sessions, seed)
        random.Random(seed).shuffle(tolds)
        assert any_left_in(path, tolds) == set[str]().union(*(told.words for told in tolds))
        for told in tolds[:20]:
            sessions.delete(told.id)
        assert sessions.sweep(purge_after=timedelta(0)).purged > 20
        assert sessions.delete_expired(BEGIN) == SESSIONS - 20
        assert any_left_in(path, tolds) == set()


def test_what_a_reader_in_another_process_holds_up_a_sweep_completes(path: Path) -> None:
    with service(path, SQLITE_LOCK_TIMEOUT="1") as sessions, reading(path) as reader:
        told = told_a_little(sessions, seed=0)[7]
        reader.tell("hold")
        assert sessions.delete(told.id).erasure == "pending"
        reader.tell("leave")
        assert sessions.sweep().pending == 0
        assert told.left_in(path) == set()


def test_no_word_is_left_of_what_was_stored_before_the_recorder_wrote_rows(path: Path) -> None:
    with service(path, **WITHOUT_ROWS) as sessions:
        tolds = told_a_little(sessions, seed=0)
    with service(path) as sessions:
        assert sessions.delete_expired(BEGIN) == SESSIONS
        assert sessions.sweep().pending == 0
        assert any_left_in(path, tolds) == set()


def words_of(event: SessionEvent) -> set[str]:
    """The words that the event holds as content; ids of calls are none."""
    said = event.message.to_dict() if event.message else dict(event.payload or {})
    without_ids = re.sub(r"'id': '[^']*'", "", repr(said))
    return set(re.findall(rf"(?<![A-Za-z])[A-Za-z]{{{WORD}}}(?![A-Za-z])", without_ids))


def redact_some(sessions: SessionService, told: Told, path: Path) -> dict[str, set[str]]:
    """Redact a third of what the session was told; by event what is left of it."""
    events = [event for event in sessions.get_events(told.id) if words_of(event)]
    chosen = told.dice.sample(events, len(events) // 3)
    for event in chosen:
        assert sessions.redact(told.id, event.id, reason="asked", by="bob").erasure == "done"
    return {event.id: told.left_in(path, words_of(event)) for event in chosen}


SETTINGS: tuple[dict[str, str], ...] = ({}, WITHOUT_ROWS)


@pytest.mark.parametrize("env", SETTINGS, ids=("rows", "plain"))
@pytest.mark.parametrize("seed", range(2))
def test_no_word_of_a_redacted_event_is_left(path: Path, seed: int, env: dict[str, str]) -> None:
    with service(path, **env) as one, service(path, **env) as two, reading(path) as reader:
        tolds = interleaved([one, two], seed)
        reader.tell("read")
        one.search_all(EventQuery(keywords="heron"))
        early, others = tolds[:4], tolds[4:]
        random.Random(seed).shuffle(others)
        for told in [*others[:5], *early]:
            left = redact_some(two, told, path)
            assert left == {event_id: set() for event_id in left}
        assert SessionAudit(one).verify().findings == ()


@pytest.mark.parametrize("env", SETTINGS, ids=("rows", "plain"))
def test_no_word_is_left_of_a_deleted_session_whose_neighbours_were_redacted(
    path: Path, env: dict[str, str]
) -> None:
    with service(path, **env) as sessions:
        tolds = interleaved([sessions], seed=3)
        for told in tolds[:10]:
            redact_some(sessions, told, path)
        for told in tolds[10:14]:
            assert sessions.delete(told.id).erasure == "done"
            assert told.left_in(path) == set()


def test_a_redaction_that_a_reader_in_another_process_holds_up_a_sweep_completes(path: Path) -> None:
    with service(path, SQLITE_LOCK_TIMEOUT="1") as sessions, reading(path) as reader:
        told = interleaved([sessions], seed=5)[7]
        event = next(event for event in sessions.get_events(told.id) if words_of(event))
        reader.tell("hold")
        assert sessions.redact(told.id, event.id, reason="asked", by="bob").erasure == "pending"
        reader.tell("leave")
        assert sessions.sweep().pending == 0
        assert told.left_in(path, words_of(event)) == set()


def test_former_metadata_that_were_redacted_are_nowhere(path: Path) -> None:
    with service(path) as sessions:
        told = interleaved([sessions], seed=6)[3]
        title = told.word()
        version = sessions.update_metadata(told.id, {"title": title})
        sessions.update_metadata(told.id, {})
        assert sessions.redact(told.id, version, reason="asked", by="bob").erasure == "done"
        assert told.left_in(path, {title}) == set()


def test_a_crash_between_the_redaction_and_the_erasure_is_completed_by_a_sweep(path: Path) -> None:
    with service(path, **WITHOUT_ROWS) as sessions:
        told = interleaved([sessions], seed=7)[3]
        event = next(event for event in sessions.get_events(told.id) if words_of(event))
        eraser = vars(sessions)["_eraser"]
        vars(sessions)["_eraser"] = Crashing()
        with pytest.raises(KeyboardInterrupt):
            sessions.redact(told.id, event.id, reason="asked", by="bob")
        vars(sessions)["_eraser"] = eraser
    with service(path, **WITHOUT_ROWS) as sessions:
        assert sessions.sweep(None).completed == 1
        assert told.left_in(path, words_of(event)) == set()
        assert sessions.get_event(told.id, event.id).redacted


class Crashing:
    """Stands for a process that dies between the write and the erasure."""

    redacts = True

    def redact(self, redactions: object) -> None:  # noqa: ARG002 - the port's argument
        raise KeyboardInterrupt
