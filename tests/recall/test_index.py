"""The index on SQLite: exact at commit, never more than a narrowing, and nothing left behind."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recall.conftest import on_sqlite

from turnlog.application.recall import message_text
from turnlog.application.service import SessionService
from turnlog.domain.entries import entry_of
from turnlog.domain.errors import StorageError, UnreadableEventError
from turnlog.domain.events import MessageAppended
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, TextPart, ToolCallPart
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.sqlite import SqliteReadModels, SqliteSessionRecorder, recall
from turnlog.infrastructure.sqlite.recall import MAX_LAG, SqliteRecallIndex

KESTREL = EventQuery(keywords="kestrel")


def user(text: str) -> NewEvent:
    return NewEvent(message=Message.user(text))


def file_of(sessions: SessionService) -> str:
    return str(sessions.app.env["SQLITE_DBNAME"])


def rows(sessions: SessionService, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file_of(sessions))) as connection:
        return connection.execute(statement).fetchall()


def change(sessions: SessionService, statement: str) -> None:
    with closing(sqlite3.connect(file_of(sessions))) as connection:
        connection.execute(statement)
        connection.commit()


def lag(sessions: SessionService) -> int:
    """Events that are stored and not indexed."""
    newest = "(SELECT max(rowid) FROM stored_events)"
    mark = "COALESCE((SELECT max(notification) FROM turnlog_recall_mark), 0)"
    ((behind,),) = rows(sessions, f"SELECT {newest} - {mark}")
    assert isinstance(behind, int)
    return behind


def test_each_message_is_found_as_soon_as_it_was_appended(indexed: SessionService) -> None:
    indexed.create("a")
    for number in range(3 * MAX_LAG):
        event = indexed.append_message("a", Message.user(f"parcel number<{number}>"))
        assert indexed.search_events("a", EventQuery(keywords=f"number<{number}>")) == (event,)


def test_what_another_process_appended_is_found(indexed: SessionService) -> None:
    indexed.create("a")
    script = (
        "import sys\n"
        "from turnlog.application import SessionService\n"
        "from turnlog.domain import Message\n"
        "env = {'PERSISTENCE_MODULE': 'eventsourcing.sqlite', 'SQLITE_DBNAME': sys.argv[1]}\n"
        "with SessionService(env=env) as sessions:\n"
        "    for number in range(300):\n"
        "        sessions.append_message('a', Message.user(f'kestrel {number}'))\n"
    )
    assert indexed.search_events("a", KESTREL) == ()
    subprocess.run([sys.executable, "-c", script, file_of(indexed)], check=True)
    assert len(indexed.search_events("a", KESTREL)) == 300


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_the_index_lags_by_no_more_than_it_may(indexed: SessionService, batch: int) -> None:
    indexed.create("a")
    behind: list[int] = []
    for _ in range(1 + 600 // batch):
        indexed.append_events("a", [user("kestrel")] * batch)
        behind.append(lag(indexed))
    assert max(behind) <= MAX_LAG


def test_a_search_reads_few_messages_of_a_long_session(
    indexed: SessionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.create("a")
    indexed.append_events("a", [user(f"kes est str {n} tre") for n in range(2000)] + [user("kestrel")])
    indexed.append_events("a", [user("noted")] * 1000)
    read: list[int] = []
    whole = SqliteRecallIndex.candidates

    def candidates(
        self: SqliteRecallIndex, ids: Sequence[UUID], query: EventQuery
    ) -> Mapping[UUID, Sequence[int]] | None:
        found = whole(self, ids, query)
        read.extend(version for versions in (found or {}).values() for version in versions)
        return found

    monkeypatch.setattr(SqliteRecallIndex, "candidates", candidates)
    assert len(indexed.search_events("a", KESTREL)) == 1
    assert len(read) <= 1 + MAX_LAG


def test_messages_that_were_stored_without_the_index_are_found(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "is_supported", lambda: False)
        with on_sqlite(path) as sessions:
            sessions.create("a")
            sessions.append_events("a", [user(f"kestrel {number}") for number in range(3000)])
    with on_sqlite(path) as sessions:
        before = len(sessions.search_events("a", KESTREL))
        for _ in range(10):
            sessions.append_message("a", Message.user("noted"))
        assert (before, len(sessions.search_events("a", KESTREL)), lag(sessions) <= MAX_LAG) == (
            3000,
            3000,
            True,
        )


def test_an_index_of_another_rule_is_built_anew(indexed: SessionService) -> None:
    indexed.create("a")
    indexed.append_events("a", [user(f"kestrel {number}") for number in range(300)])
    change(indexed, "UPDATE turnlog_recall_mark SET rule = 0")
    before = len(indexed.search_events("a", KESTREL))
    indexed.append_message("a", Message.user("noted"))
    rule = rows(indexed, "SELECT rule FROM turnlog_recall_mark")
    assert (before, len(indexed.search_events("a", KESTREL)), rule) == (300, 300, [(3,)])


def test_row_ids_that_were_given_anew_hide_no_message(indexed: SessionService) -> None:
    for name in ("gone", "a"):
        indexed.create(name)
        indexed.append_events(name, [user("noted")] * 300)
    for _ in range(MAX_LAG // 2):
        indexed.append_message("a", Message.user("kestrel"))
    change(indexed, "DELETE FROM stored_events WHERE rowid BETWEEN 100 AND 129")
    change(indexed, "UPDATE stored_events SET rowid = rowid - 30 WHERE rowid > 129")
    before = len(indexed.search_events("a", KESTREL))
    indexed.append_events("a", [user("kestrel")] * 300)
    assert (before, len(indexed.search_events("a", KESTREL))) == (MAX_LAG // 2, MAX_LAG // 2 + 300)


def test_an_engine_that_fails_is_an_error_and_never_no_results(indexed: SessionService) -> None:
    indexed.create("a")
    indexed.append_events("a", [user("kestrel")] * 300)
    change(indexed, "DELETE FROM turnlog_recall_0_data")
    with pytest.raises(StorageError):
        indexed.search_events("a", KESTREL)


def test_a_lost_table_is_an_error_and_never_no_results(indexed: SessionService) -> None:
    indexed.create("a")
    change(indexed, "DROP TABLE turnlog_recall_mark")
    with pytest.raises(StorageError):
        indexed.search_events("a", KESTREL)


def test_a_write_that_is_refused_leaves_nothing_to_find(indexed: SessionService) -> None:
    indexed.create("a")
    indexed.append_events("a", [user("noted")] * (MAX_LAG - 1))
    with pytest.raises(Exception, match="version"):
        indexed.append_events("a", [user("kestrel")] * 300, expected_version=3)
    assert indexed.search_events("a", KESTREL) == ()


class Order(Aggregate):
    """An aggregate of a host."""


def test_events_of_a_host_in_the_same_store_do_no_harm(tmp_path: Path) -> None:
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "SQLITE_DBNAME": str(tmp_path / "host.db"),
        "APPLICATION_RECORDER_TOPIC": "turnlog.infrastructure.sqlite:SqliteSessionRecorder",
    }
    host = Application[UUID](env=env)
    sessions = SessionService(host)
    sessions.create("a")
    sessions.append_message("a", Message.user("kestrel"))
    for _ in range(3):
        host.save(*[Order() for _ in range(MAX_LAG)])
    sessions.append_message("a", Message.user("another kestrel"))
    assert len(sessions.search_events("a", KESTREL)) == 2
    host.close()


def test_stores_with_ids_of_text_are_searched_as_well(tmp_path: Path) -> None:
    with on_sqlite(tmp_path / "sessions.db", ORIGINATOR_ID_TYPE="text") as sessions:
        sessions.create("a")
        sessions.append_events("a", [user("kestrel")] * 300)
        assert len(sessions.search_events("a", KESTREL)) == 300


def test_compressed_events_are_searched_as_well(tmp_path: Path) -> None:
    with on_sqlite(tmp_path / "sessions.db", COMPRESSOR_TOPIC="zlib") as sessions:
        sessions.create("a")
        sessions.append_events("a", [user("kestrel")] * 300)
        assert len(sessions.search_events("a", KESTREL)) == 300


@pytest.fixture
def no_trigrams() -> Iterator[None]:
    """An SQLite whose full-text tables know no trigrams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "TABLE", "CREATE VIRTUAL TABLE t{part} USING fts5(x, tokenize = 'nothing')")
        recall.is_supported.cache_clear()
        yield
    recall.is_supported.cache_clear()


@pytest.mark.usefixtures("no_trigrams")
def test_without_trigrams_the_logs_are_read_and_the_capabilities_say_so(tmp_path: Path) -> None:
    with on_sqlite(tmp_path / "sessions.db") as sessions:
        sessions.create("a")
        sessions.append_message("a", Message.user("kestrel"))
        assert (len(sessions.search_events("a", KESTREL)), sessions.capabilities.recall) == (1, "log")


def test_with_trigrams_the_capabilities_say_so(indexed: SessionService) -> None:
    assert indexed.capabilities.recall == "index"


# --- removal


def remove(sessions: SessionService, session_id: str, versions: Sequence[int] | None = None) -> None:
    """Take the session out of the index, as its deletion does, without deleting it."""
    recorder = sessions.app.recorder
    assert isinstance(recorder, SqliteSessionRecorder)
    index = recorder.recall
    assert index is not None
    (row,) = sessions.sessions_with_prefix(session_id, limit=1)
    with recorder.datastore.transaction(commit=True) as cursor:
        index.remove(cursor, row.aggregate_id, versions)


def trigrams(sessions: SessionService) -> set[str]:
    terms: set[str] = set()
    with closing(sqlite3.connect(file_of(sessions))) as connection:
        for (part,) in connection.execute("SELECT part FROM turnlog_recall_parts").fetchall():
            vocabulary = f"fts5vocab(main, turnlog_recall_{part}, row)"
            connection.execute(f"CREATE VIRTUAL TABLE temp.terms_{part} USING {vocabulary}")
            terms |= {term for (term,) in connection.execute(f"SELECT term FROM temp.terms_{part}")}
    return terms


def pages(sessions: SessionService) -> bytes:
    """The tables of the index as they are stored."""
    held: list[tuple[object, ...]] = []
    for (part,) in rows(sessions, "SELECT part FROM turnlog_recall_parts"):
        data, terms = f"turnlog_recall_{part}_data", f"turnlog_recall_{part}_idx"
        held += rows(sessions, f"SELECT block FROM {data} UNION ALL SELECT term FROM {terms}")
    return b"\0".join(page if isinstance(page, bytes) else str(page).encode() for (page,) in held)


def test_nothing_of_a_removed_session_is_left_in_the_index(indexed: SessionService) -> None:
    removed = "\u1300\u1301\u1302"
    for name, word in (("a", "kestrel"), ("b", removed)):
        indexed.create(name)
        indexed.append_events(name, [user(f"{word} {number}") for number in range(700)])
    indexed.append_message("b", Message.user("x" * (recall.MAX_INDEXED + 1)))
    indexed.append_events("b", [user(removed)] * 300)
    before = pages(indexed).count(removed.encode())
    remove(indexed, "b")
    after = pages(indexed)
    assert (before > 0, removed.encode() in after, "\ue000".encode() in after) == (True, False, False)


@pytest.mark.parametrize("removed", ["heron", "明天会议", "a\ud83db"])
def test_a_removal_leaves_the_trigrams_of_others(indexed: SessionService, removed: str) -> None:
    for name, word in (("a", "kestrel"), ("b", removed)):
        indexed.create(name)
        indexed.append_events(name, [user(word)] * 300)
    remove(indexed, "b")
    assert trigrams(indexed) == {"kes", "est", "str", "tre", "rel"}


def test_nothing_is_left_of_a_session_that_an_index_of_another_rule_held(indexed: SessionService) -> None:
    indexed.create("a")
    indexed.append_events("a", [user("kestrel")] * 300)
    change(indexed, "UPDATE turnlog_recall_mark SET rule = 0")
    remove(indexed, "a")
    assert trigrams(indexed) == set()


def test_single_messages_are_removed_from_the_index(indexed: SessionService) -> None:
    indexed.create("a")
    indexed.append_events("a", [user("kestrel"), user("heron")])
    indexed.append_events("a", [user("noted")] * 300)
    remove(indexed, "a", versions=[1])
    left = trigrams(indexed)
    assert ("kes" in left, "her" in left) == (False, True)


def test_other_sessions_are_found_behind_a_removal(indexed: SessionService) -> None:
    for name in ("a", "b"):
        indexed.create(name)
        indexed.append_events(name, [user(f"kestrel {name} {number}") for number in range(300)])
    remove(indexed, "b")
    assert len(indexed.search_events("a", KESTREL)) == 300


def test_deleting_a_session_removes_it_from_the_index(indexed: SessionService) -> None:
    indexed.create("a")
    indexed.append_events("a", [user("kestrel")] * 300)
    indexed.delete("a")
    indexed.create("b")
    indexed.append_events("b", [user("heron")] * 300)
    assert not {"kes", "est", "str", "tre", "rel"} & trigrams(indexed)


# --- the index is only ever a narrowing

TOMORROW = "明天会议"


def folded_alike(word: str) -> str:
    """Another word that the index cannot tell from it."""
    return "".join(chr(ord(character) + 31) for character in word)


WORDS = st.sampled_from(
    [
        *("oak", "cedar", "Ahorn", "ÄPFEL", "äpfel", "会议", TOMORROW, "a", "b", "%", '"', "AND", "é"),
        *(folded_alike(TOMORROW), "の会議", "회의를", "会议oak", "\ud800天会", "\uffff天会"),
    ]
)
TEXTS = st.lists(WORDS | st.text(max_size=6), max_size=5).map(" ".join)
QUERIES = st.builds(
    EventQuery,
    keywords=st.lists(WORDS | st.text(min_size=1, max_size=4), max_size=3).filter(
        lambda words: not words or any(word.strip() for word in words)
    ),
    match=st.sampled_from(["any", "all"]),
    roles=st.none() | st.sets(st.sampled_from(["user", "assistant"])),
)


def no_candidates(_: SqliteRecallIndex, ids: Sequence[UUID], query: EventQuery) -> None:
    """The answer of an index that cannot narrow a search."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("narrowing")


def test_a_word_that_is_folded_alike_is_a_candidate_and_not_found(indexed: SessionService) -> None:
    indexed.create("a")
    texts = [TOMORROW, folded_alike(TOMORROW), "明天开会", "noted"]
    indexed.append_events("a", [user(text) for text in texts])
    indexed.append_events("a", [user("noted")] * 300)
    recorder = indexed.app.recorder
    assert isinstance(recorder, SqliteSessionRecorder)
    assert recorder.recall is not None
    (row,) = indexed.list_sessions()
    query = EventQuery(keywords=TOMORROW)
    candidates = recorder.recall.candidates([row.aggregate_id], query)
    found = indexed.search_events("a", query)
    assert (candidates, [event.text for event in found]) == ({row.aggregate_id: [1, 2]}, [TOMORROW])


def test_no_text_of_a_script_of_thousands_of_characters_has_many_trigrams(indexed: SessionService) -> None:
    chance = random.Random(7)
    indexed.create("a")
    every = [*range(0x3400, 0xA000), *range(0xAC00, 0xD7A4)]
    indexed.append_events("a", [user("".join(map(chr, chance.choices(every, k=170)))) for _ in range(600)])
    held = trigrams(indexed)
    assert 20_000 < len(held) <= 31**3


def test_a_session_in_any_place_of_a_part_is_found_compared_and_removed(indexed: SessionService) -> None:
    names = [f"s{number}" for number in range(2 * recall.PARTS * 4 + 5)]
    for name in names:
        indexed.create(name)
    for name in names:
        indexed.append_message(name, Message.user(f"kestrel of {name}!"))
    indexed.append_events(names[0], [user("noted")] * 300)
    remove(indexed, names[130])
    missing = [name for name in names if len(indexed.search_events(name, KESTREL)) != 1]
    together = len(indexed.search_all(KESTREL))
    named = {one.session_id for one in SqliteReadModels(indexed.app).compare().differences}
    assert (missing, together, named) == ([names[130]], len(names) - 1, {names[130]})


@pytest.mark.parametrize("damage", ["state = X'00'", "topic = 'turnlog.domain.events:FutureThing'"])
def test_what_cannot_be_read_stops_no_write_and_is_never_left_out_of_a_search(
    indexed: SessionService, damage: str
) -> None:
    for name in ("a", "b"):
        indexed.create(name)
        indexed.append_events(name, [user("a kestrel")] * 3)
    change(indexed, f"UPDATE stored_events SET {damage} WHERE rowid = 3")
    for _ in range(2 * MAX_LAG):
        indexed.append_message("b", Message.user("noted"))
    assert (lag(indexed) <= MAX_LAG, len(indexed.search_events("b", KESTREL))) == (True, 3)
    with pytest.raises(UnreadableEventError, match="version 2 of session 'a'"):
        indexed.search_events("a", KESTREL)
    with pytest.raises(UnreadableEventError, match="version 2 of session 'a'"):
        indexed.search_all(KESTREL)
    indexed.delete("a")
    assert len(indexed.search_all(KESTREL)) == 3
    assert SqliteReadModels(indexed.app).compare().differences == ()


@settings(max_examples=60, deadline=None)
@given(
    logs=st.lists(st.lists(TEXTS, max_size=12), min_size=1, max_size=3),
    queries=st.lists(QUERIES, min_size=1, max_size=5),
    max_lag=st.integers(0, 8),
)
def test_an_index_finds_what_reading_the_logs_finds(
    folder: Path, logs: list[list[str]], queries: list[EventQuery], max_lag: int
) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, on_sqlite(folder / "sessions.db") as sessions:
        patch.setattr(recall, "MAX_LAG", max_lag)
        for number, texts in enumerate(logs):
            sessions.create(f"s{number}", metadata={"parity": number % 2})
            for text in texts:
                sessions.append_message(f"s{number}", Message.user(text))

        def found(query: EventQuery) -> object:
            apart = [sessions.search_events(f"s{number}", query) for number in range(len(logs))]
            return apart, sessions.search_all(query, where={"parity": 0}), sessions.search_all(query)

        with_index = [found(query) for query in queries]
        patch.setattr(recall, "_RANGES", 0)
        assert [found(query) for query in queries] == with_index
        patch.setattr(SqliteRecallIndex, "candidates", no_candidates)
        assert [found(query) for query in queries] == with_index


PARTS = st.lists(st.builds(TextPart, content=st.text()) | st.just(ToolCallPart(id="1", name="f")), max_size=3)


@given(PARTS)
def test_the_text_that_is_searched_is_the_text_of_the_message(parts: list[TextPart | ToolCallPart]) -> None:
    message = Message.assistant(parts)
    with SessionService() as sessions:
        sessions.create("a")
        sessions.append_message("a", message)
        (stored,) = sessions.app.events.get(next(iter(sessions.list_sessions())).aggregate_id, gt=0)
    assert isinstance(stored, MessageAppended)
    entry = entry_of(stored, "a")
    assert entry is not None
    assert message_text(stored) == entry.text == message.text


def test_a_redaction_leaves_no_mark_to_an_index_that_it_emptied(tmp_path: Path) -> None:
    with on_sqlite(tmp_path / "sessions.db") as sessions:
        sessions.create("s")
        said = sessions.append_events("s", [user("a kestrel"), user("a heron")])
        change(sessions, "UPDATE turnlog_recall_mark SET rule = rule - 1")  # another release wrote it
        sessions.redact("s", said[1].id, reason="asked for", by="ada")
        assert rows(sessions, "SELECT rule FROM turnlog_recall_mark") == []
        assert [event.id for event in sessions.search_events("s", KESTREL)] == [said[0].id]
