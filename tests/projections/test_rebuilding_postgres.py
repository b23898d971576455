"""What is particular to rebuilding and comparing in a PostgreSQL database."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest
from psycopg import sql
from tests.postgres.conftest import datastore_of
from tests.projections.activity import Life, live, turn
from tests.projections.databases import PLAIN_POSTGRES, PostgresSchema
from tests.projections.processes import worker
from tests.projections.test_rebuilding import at_progress, found, rows
from tests.support.postgres import connect

from turnlog.application.audit import SessionAudit
from turnlog.application.ports import RECALL
from turnlog.application.projections import (
    MaterialisedViews,
    ReadModelOutdatedError,
    SessionProjectionRunner,
    ViewProjection,
    replaying,
)
from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.errors import InvalidSettingError, StorageError
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.postgres import (
    PlainPostgresEraser,
    PostgresReadModels,
    PostgresViewStore,
    building,
)

ZEBRA = EventQuery(keywords="zebra")


pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def listed(sessions: SessionService) -> list[str]:
    return [row.session_id for row in sessions.list_sessions(limit=1000)]


def filled(sessions: SessionService, *names: str, turns: int = 20) -> None:
    for name in names:
        sessions.create(name, metadata={"of": name})
        sessions.append_events(
            name, [NewEvent(message=Message.user(f"zebra {number} of {name}")) for number in range(turns)]
        )


@pytest.mark.parametrize("lost", ["b", "d", "a", "bc", "abcd", "cd"])
def test_lost_rows_are_made_anew_in_the_order_of_the_log(
    sessions: SessionService, database: PostgresSchema, lost: str
) -> None:
    filled(sessions, *"abcd")
    ids = ", ".join(f"'{name}'" for name in lost)
    database.change(
        "UPDATE turnlog_sessions SET position = DEFAULT WHERE session_id = 'd'",  # as behind a gap
        f"DELETE FROM turnlog_sessions WHERE session_id IN ({ids})",
    )
    models = PostgresReadModels(sessions.app)
    assert {one.session_id for one in models.compare().differences} >= set(lost)
    models.rebuild(["directory"])
    assert models.compare().differences == ()
    sessions.create("late")
    assert listed(sessions) == ["late", "d", "c", "b", "a"]
    for name in "abcd":
        assert len(sessions.search_events(name, ZEBRA)) == 20
        assert [row.session_id for row in sessions.find_by_metadata({"of": name})] == [name]


def test_positions_stay_what_they_are(sessions: SessionService, database: PostgresSchema) -> None:
    filled(sessions, *"abc")
    database.change("UPDATE turnlog_sessions SET position = DEFAULT WHERE session_id = 'c'")
    sessions.create("d")
    sessions.delete("b")
    positions = (
        "SELECT aggregate_id, position FROM turnlog_sessions UNION SELECT aggregate_id, position FROM "
    )
    before = sorted(database.rows(positions + "turnlog_ended"))
    database.change("DELETE FROM turnlog_metadata", "UPDATE turnlog_sessions SET head = ''")
    PostgresReadModels(sessions.app).rebuild(["directory", "recall"])
    assert sorted(database.rows(positions + "turnlog_ended")) == before
    assert PostgresReadModels(sessions.app).compare().differences == ()


def test_what_is_right_already_is_not_written(sessions: SessionService, database: PostgresSchema) -> None:
    live(sessions, 3, 60)
    models = PostgresReadModels(sessions.app)
    models.rebuild()
    tables = ("sessions", "ended", "metadata", "by_metadata", "recall", "recall_mark")
    select = "SELECT xmin::text, * FROM turnlog_{} ORDER BY 2, 3"
    selects = [select.format(table) for table in (*tables, "views", "view_messages")]
    before = [database.rows(one) for one in selects]
    models.rebuild()
    assert [database.rows(one) for one in selects] == before


def test_heads_of_deleted_sessions_stay_known(sessions: SessionService, database: PostgresSchema) -> None:
    filled(sessions, "a", "b", turns=3)
    audit = SessionAudit(sessions)
    sessions.delete("a")
    heads = audit.export_heads()
    before = database.rows("SELECT * FROM turnlog_ended")
    models = PostgresReadModels(sessions.app)
    models.rebuild()
    assert database.rows("SELECT * FROM turnlog_ended") == before
    assert audit.verify(heads=heads).is_whole


def test_a_deletion_of_which_nothing_is_known_is_read_from_its_tombstone(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", "b", turns=3)
    sessions.delete("b")
    before = database.rows("SELECT aggregate_id, version, head FROM turnlog_ended")
    database.change("DELETE FROM turnlog_ended")
    models = PostgresReadModels(sessions.app)
    assert "1 deletion is missing" in models.compare().differences[0].detail
    models.rebuild(["directory"])
    assert database.rows("SELECT aggregate_id, version, head FROM turnlog_ended") == before
    assert models.compare().differences == ()


def test_grants_and_views_of_others_stay(sessions: SessionService, database: PostgresSchema) -> None:
    filled(sessions, "a", turns=2)
    models = PostgresReadModels(sessions.app)
    models.rebuild()
    database.change(
        "CREATE VIEW shown AS SELECT count(*) FROM turnlog_view_messages",
        "GRANT SELECT ON turnlog_sessions TO PUBLIC",
        "DELETE FROM turnlog_view_messages",
        "DELETE FROM turnlog_sessions",
    )
    models.rebuild()
    assert database.one("SELECT * FROM shown") == 2
    granted = "SELECT has_table_privilege('pg_monitor', 'turnlog_sessions', 'SELECT')"
    assert database.one(granted.replace("turnlog", "sessions_turnlog", 1)) is True


def test_damage_to_the_index_is_named_and_made_right(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=50)
    database.change(
        "DELETE FROM turnlog_recall WHERE first = 1",
        "UPDATE turnlog_recall SET grams = grams[2:] WHERE first = 17",
        "INSERT INTO turnlog_recall SELECT position, 900, 915, grams FROM turnlog_recall WHERE first = 33",
    )
    models = PostgresReadModels(sessions.app)
    differences = models.compare().differences
    assert {(one.model, one.session_id) for one in differences} == {("recall", "a")}
    assert [one.detail for one in differences] == [
        "messages 1 to 16 are not indexed",
        "messages 17 to 32 are indexed as the log does not have them",
        "messages 900 to 915 are indexed as the log does not have them",
    ]
    models.rebuild(["recall"])
    assert models.compare().differences == ()
    assert len(sessions.search_events("a", ZEBRA)) == 50


def test_numbers_of_a_block_may_stand_in_any_order(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=20)
    database.change("UPDATE turnlog_recall SET grams = ARRAY(SELECT unnest(grams) ORDER BY 1 DESC)")
    assert PostgresReadModels(sessions.app).compare().differences == ()


@pytest.mark.parametrize("recorder", [None, PLAIN_POSTGRES])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_redacted_meanwhile_is_not_indexed(
    database: PostgresSchema, monkeypatch: pytest.MonkeyPatch, recorder: str | None, at: int
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 20)
    with database.service(recorder) as sessions:
        filled(sessions, "a", turns=40)
        sessions.search_events("a", ZEBRA)
        secret = sessions.get_events("a")[4].id

        def redact() -> None:
            sessions.redact("a", secret, reason="asked", by="ada")

        models = PostgresReadModels(sessions.app)
        models.rebuild(progress=at_progress([*[lambda: None] * at, redact]))
        assert models.compare().differences == ()
        assert len(sessions.search_events("a", ZEBRA)) == 39


def died(*_: object) -> None:
    """What a process does that ends behind the redaction."""


def test_a_redaction_that_is_carried_out_during_the_rebuild_is_not_undone_in_the_index(
    database: PostgresSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.service(PLAIN_POSTGRES) as sessions:
        filled(sessions, "a", turns=40)
        sessions.search_events("a", ZEBRA)
        with monkeypatch.context() as dying:
            dying.setattr(PlainPostgresEraser, "redact", died)
            sessions.redact("a", sessions.get_events("a")[4].id, reason="asked", by="ada")
        models = PostgresReadModels(sessions.app)
        models.rebuild(progress=at_progress([sessions.sweep]))
        assert models.compare().differences == ()


def test_a_store_without_an_index_has_none_rebuilt(database: PostgresSchema) -> None:
    with SessionService(env={**database.env, RECALL: "no"}) as sessions:
        sessions.create("a")
        models = PostgresReadModels(sessions.app)
        assert models.present() == ("directory", "ledger")
        with pytest.raises(StorageError, match="no index"):
            models.rebuild(["recall"])
        models.rebuild(models.present())
        assert models.compare().differences == ()


def test_the_temporary_tables_are_gone_behind_each_use(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=2)
    models = PostgresReadModels(sessions.app)
    for use in (models.compare, models.rebuild, models.compare):
        use()
        with datastore_of(sessions).get_connection() as connection:
            left = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema() "
                "UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = pg_my_temp_schema()"
            ).fetchall()
        assert left == []
    assert not any("turnlog_number" in name for name in database.tables())


def test_a_rebuild_whose_connection_is_ended_changed_nothing(
    sessions: SessionService, database: PostgresSchema
) -> None:
    live(sessions, 6, 40)
    models = PostgresReadModels(sessions.app)
    models.rebuild()
    database.change("UPDATE turnlog_sessions SET messages = 77")
    before = rows(database)

    def end(_: int) -> None:
        with connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pg_stat_get_backend_pid(backend)) "
                "FROM pg_stat_get_backend_idset() AS backend, pg_class, pg_namespace "
                "WHERE relname = 'sessions_turnlog_sessions' AND pg_namespace.oid = relnamespace "
                "AND nspname = 'pg_temp_' || backend"
            )

    with pytest.raises(StorageError):
        models.rebuild(progress=end)
    assert rows(database) == before
    models.rebuild()
    assert models.compare().differences == ()


class Shop(Sessions):
    """Another application in the same schema."""

    name = "Shop"


class ShopViews(PostgresViewStore):
    name = "shop_turnlog_view"


def runner_of(
    database: PostgresSchema, app_class: type[Sessions], view_class: type[PostgresViewStore]
) -> SessionProjectionRunner[PostgresViewStore]:
    kind: Any = ViewProjection
    return SessionProjectionRunner(
        application_class=app_class, projection_class=kind, view_class=view_class, env=database.env
    )


def test_a_view_store_follows_one_application_and_refuses_another(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=2)
    with runner_of(database, Sessions, PostgresViewStore) as runner:
        runner.wait(sessions.app.recorder.max_notification_id(), timeout=60)
    with pytest.raises(InvalidSettingError, match="shop_turnlog_view"):
        runner_of(database, Shop, PostgresViewStore)
    with runner_of(database, Shop, ShopViews) as runner:
        shop = SessionService(runner.app)
        filled(shop, "a", turns=3)
        runner.wait(shop.app.recorder.max_notification_id(), timeout=60)
        assert MaterialisedViews(shop, runner.view).view("a") == shop.view("a")
        assert PostgresReadModels(shop.app).compare().differences == ()
    assert database.one("SELECT count(*) FROM turnlog_view_messages") == 2


def test_the_view_of_a_second_application_is_rebuilt_in_tables_of_its_own(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=2)
    PostgresReadModels(sessions.app).rebuild(["view"])
    with SessionService(Shop(env=database.env)) as shop:
        filled(shop, "a", turns=3)
        models = PostgresReadModels(shop.app)
        assert "view" not in models.present()
        models.rebuild(["view"])
        assert "view" in models.present()
        assert models.compare().differences == ()
        shop.app.close()
    assert database.one("SELECT count(*) FROM turnlog_view_messages") == 2
    assert database.one("SELECT count(*) FROM shop_turnlog_view_messages") == 3


def test_threads_that_make_the_tables_at_once_all_find_them(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=2)

    def follow(_: int) -> int:
        with database.view_store() as store:
            stored = MaterialisedViews(sessions, store)
            stored.catch_up()
            return len(stored.rows("a").rows)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(follow, range(8))) == [2] * 8


def test_who_may_only_read_can_compare(sessions: SessionService, database: PostgresSchema) -> None:
    live(sessions, 1, 30)
    PostgresReadModels(sessions.app).rebuild()
    schema = sql.Identifier(database.env["POSTGRES_SCHEMA"])
    guest = sql.Identifier("guest_" + database.env["POSTGRES_SCHEMA"])

    def execute(*statements: Any) -> None:
        with connect() as connection:
            for statement in statements:
                connection.execute(sql.SQL(statement).format(role=guest, schema=schema))

    execute(
        "CREATE ROLE {role} LOGIN",
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    env = {**database.env, "POSTGRES_USER": guest.as_string().strip('"'), "CREATE_TABLE": "no"}
    try:
        with Sessions(env=env) as app:
            comparison = PostgresReadModels(app).compare()
            assert set(comparison.positions) == {"view", "recall", "directory", "ledger"}
            assert comparison.differences == ()
    finally:
        execute("DROP OWNED BY {role}", "DROP ROLE {role}")


def test_rebuilds_beside_writers_a_runner_and_each_other_leave_what_the_log_leads_to(
    sessions: SessionService, database: PostgresSchema
) -> None:
    sessions.create("a")
    life = Life(sessions, 9)
    with (
        worker("append", database, "x", 30) as one,
        worker("append", database, "y", 30) as other,
        worker("follow", database),
        database.service() as second,
        ThreadPoolExecutor(2) as pool,
    ):
        while one.poll() is None or other.poll() is None:
            done = [pool.submit(PostgresReadModels(service.app).rebuild) for service in (sessions, second)]
            for _ in range(5):
                life.step()
            for future in done:
                future.result(timeout=60)
        assert (one.returncode, other.returncode) == (0, 0)
    with database.view_store() as store:
        MaterialisedViews(sessions, store).catch_up()
    assert PostgresReadModels(sessions.app).compare().differences == ()
    assert sessions.version("x") == sessions.version("y") == 30
    assert found(sessions, ["x"]) == {"x": list(range(1, 31))}


def test_a_missing_view_is_made_by_its_first_rebuild(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, "a", turns=2)
    models = PostgresReadModels(sessions.app)
    assert "view" not in models.present()
    models.rebuild(["view"])
    assert "view" in models.present()
    with database.view_store() as store:
        assert len(store.view_of(aggregate_id("a")).rows) == 2
        assert store.position() == sessions.app.recorder.max_notification_id()


def test_of_a_session_that_is_deleted_meanwhile_nothing_is_indexed(
    sessions: SessionService, database: PostgresSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "PAGE", 10)
    filled(sessions, "a", "b", turns=40)
    steps = [*[lambda: None] * 8, lambda: sessions.delete("a")]
    PostgresReadModels(sessions.app).rebuild(["recall"], at_progress(steps))
    kept = database.rows("SELECT position FROM turnlog_sessions")
    for table in ("turnlog_recall", "turnlog_recall_mark"):
        assert database.rows(f"SELECT DISTINCT position FROM {table}") == kept


@pytest.mark.parametrize(
    ("recorder", "moment"),
    [
        (None, (building, "_exchange")),
        (PLAIN_POSTGRES, (building, "_exchange")),
        (PLAIN_POSTGRES, (building.PostgresStoredLog, "newest")),
    ],
    ids=["with rows", "caught up", "caught up, in front of it"],
)
def test_who_appends_during_the_exchange_waits_and_loses_nothing(
    database: PostgresSchema,
    monkeypatch: pytest.MonkeyPatch,
    recorder: str | None,
    moment: tuple[object, str],
) -> None:
    locked: list[bool] = []
    others: list[Thread] = []
    act, take = getattr(*moment), PostgresReadModels._take_the_locks  # pyright: ignore[reportPrivateUsage]

    def take_the_locks(*arguments: Any) -> None:
        take(*arguments)
        locked.append(True)

    def beside_a_writer(*arguments: Any) -> Any:
        if locked and not others:
            others.append(Thread(target=turn, args=(sessions, "a")))
            others[0].start()
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'"
            while others[0].is_alive() and not database.rows(waiting.format(database.env["POSTGRES_SCHEMA"])):
                pass
        return act(*arguments)

    with database.service(recorder) as sessions:
        filled(sessions, "a", turns=2)
        sessions.list_sessions()
        monkeypatch.setattr(PostgresReadModels, "_take_the_locks", take_the_locks)
        monkeypatch.setattr(*moment, beside_a_writer)
        models = PostgresReadModels(sessions.app)
        models.rebuild()
        others[0].join()
        monkeypatch.undo()
        with database.view_store() as store:
            MaterialisedViews(sessions, store).catch_up()
        assert [row.messages for row in sessions.list_sessions()] == [4]
        assert models.compare().differences == ()


def test_rows_that_are_lost_with_their_numbers_are_numbered_anew(
    sessions: SessionService, database: PostgresSchema
) -> None:
    filled(sessions, *"abc")
    database.change("TRUNCATE turnlog_sessions RESTART IDENTITY")
    models = PostgresReadModels(sessions.app)
    models.rebuild(["directory"])
    sessions.create("late")
    assert listed(sessions) == ["late", "c", "b", "a"]
    assert models.compare().differences == ()


PARTS = ("turnlog_ended", "turnlog_metadata", "turnlog_session_metadata")


@pytest.fixture(params=PARTS)
def without_part(request: pytest.FixtureRequest, database: PostgresSchema) -> PostgresSchema:
    """A database without one of the tables of the directory."""
    with database.service() as sessions:
        for name in ("erased", "parcel"):
            sessions.create(name, metadata={"title": "heron"})
            turn(sessions, name)
        sessions.delete("erased")
    database.change(f"DROP TABLE {request.param}")
    return database


def test_every_process_is_told_to_rebuild_a_directory_of_which_a_table_is_gone(
    without_part: PostgresSchema,
) -> None:
    for _ in range(2):
        with pytest.raises(ReadModelOutdatedError, match=r"'directory' is gone.*turnlog rebuild directory"):
            without_part.service()
    with Sessions(env=dict(without_part.env)) as app:
        PostgresReadModels(app).rebuild(["directory"])
    with without_part.service() as sessions:
        (found,) = sessions.find_by_metadata({"title": "heron"})
        assert (found.session_id, found.metadata) == ("parcel", {"title": "heron"})
        assert PostgresReadModels(sessions.app).compare().differences == ()


@pytest.mark.parametrize("is_opened_first", [False, True])
def test_only_that_is_named_where_a_table_of_the_directory_is_gone(
    without_part: PostgresSchema, is_opened_first: bool
) -> None:
    env = dict(without_part.env)
    if is_opened_first:
        Sessions(env=env).close()
    with Sessions(env={**env, "CREATE_TABLE": "no"}) as app:
        differences = PostgresReadModels(app).compare().differences
    assert [one.model for one in differences] == ["directory"]
    assert re.search(r"its table.* is gone: .*rebuild", differences[0].detail)
