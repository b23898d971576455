"""The older tracking, a row for each position: who waited for the position sees the newest one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from eventsourcing.persistence import InfrastructureFactory
from eventsourcing.utils import Environment
from tests.support.postgres import connect, postgres_env

from turnlog.application.projections import ViewProjection
from turnlog.application.projections.waiting import poll
from turnlog.infrastructure.postgres import PostgresViewStore


def is_waited_for(schema: str) -> bool:
    with connect() as connection:
        asked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
        return connection.execute(asked, (f'%"{schema}"."turnlog_view_tracking"%',)).fetchone() is not None


def test_who_waits_for_the_position_gets_the_one_that_was_written_meanwhile() -> None:
    env = {**postgres_env(), "SINGLE_ROW_TRACKING": "no"}
    factory = InfrastructureFactory[PostgresViewStore].construct(Environment(ViewProjection.name, env))
    with factory, ThreadPoolExecutor(1) as pool:
        store = factory.tracking_recorder(PostgresViewStore)
        assert store.in_transaction(store.take_position) == 0
        with store.datastore.transaction(commit=True) as cursor:
            store.take_position(cursor)
            waiting = pool.submit(store.in_transaction, store.take_position)
            assert poll(lambda: is_waited_for(env["POSTGRES_SCHEMA"]), timeout=20)
            store.move_position(cursor, 5)
        assert waiting.result(timeout=20) == 5
