"""Tables of what was erased were dropped: they are made anew from the log, with what is still to be done."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.projections.databases import DATABASES, Database

from turnlog.application import Sessions
from turnlog.domain.messages import Message

TABLES = ("turnlog_erasures", "turnlog_redactions")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """One with sessions that are kept, erased, and purged, and a content that was redacted."""
    found = DATABASES[request.param](tmp_path)
    with found.service() as service:
        for name in ("purged", "kept", "erased", "short", "live"):
            if name != "short":
                service.create(name)
                service.append_message(name, Message.user(f"Where is the {name} heron?"), event_id="asked")
        service.create("short")
        service.delete("purged")
        service.sweep(purge_after=timedelta(0))
        service.delete("short")
        service.delete("erased")
        service.delete("kept", erase=False)
        service.redact("live", "asked", reason="asked for", by="ada")
    return found


@pytest.mark.parametrize("tables", [TABLES, TABLES[:1], TABLES[1:]])
def test_what_was_erased_is_known_again(database: Database, tables: tuple[str, ...]) -> None:
    columns = {"turnlog_erasures": "deleted_at, version, purged", "turnlog_redactions": "version"}
    before = {table: sorted(database.rows(f"SELECT {columns[table]} FROM {table}")) for table in TABLES}
    assert all(before.values())
    database.change(*(f"DROP TABLE {table}" for table in tables))
    database.service().close()
    for table in TABLES:
        assert sorted(database.rows(f"SELECT {columns[table]} FROM {table}")) == before[table]


def test_copies_are_removed_by_the_next_sweep(database: Database) -> None:
    database.change(*(f"DROP TABLE {table}" for table in TABLES))
    with database.service() as service:
        swept = service.sweep(purge_after=None)
        assert (swept.completed, swept.pending) == (4, 0)
        assert service.sweep(purge_after=None).completed == 0


def test_what_was_to_be_purged_is_purged(database: Database) -> None:
    database.change(*(f"DROP TABLE {table}" for table in TABLES))
    with database.service() as service:
        assert service.sweep(purge_after=timedelta(0)).purged > 0
    assert database.one("SELECT count(*) FROM stored_events WHERE topic LIKE '%EventErased'") == 3


def test_it_is_made_anew_where_the_directory_is_lost_too(database: Database) -> None:
    count = database.one("SELECT count(*) FROM turnlog_erasures")
    database.change("DROP TABLE turnlog_erasures", "DROP TABLE turnlog_sessions")
    with Sessions(env=dict(database.env)) as app:
        database.models(app).rebuild(["directory"])
    assert database.one("SELECT count(*) FROM turnlog_erasures") == count
