"""A shop with a recorder of its own, and turnlog's rows about sessions in front of it.

The shop writes an outbox in the transaction of its events. With `SessionRows` in front the same transaction
also holds the ids and the directory of the sessions: a repeated append is known by one row, and listing
sessions is one query.

Run it: python examples/host_recorder.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor

from turnlog.application import SessionService
from turnlog.domain import Message
from turnlog.infrastructure.sqlite import SessionRows


class OutboxRecorder(SQLiteApplicationRecorder):
    """The shop's own recorder: for each event a line in its outbox, in the same transaction."""

    def construct_create_table_statements(self) -> list[str]:
        """The framework's tables and the outbox."""
        return [
            *super().construct_create_table_statements(),
            "CREATE TABLE IF NOT EXISTS outbox (position INTEGER PRIMARY KEY, topic TEXT NOT NULL)",
        ]

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        for stored in stored_events:
            c.execute("INSERT INTO outbox (topic) VALUES (?)", (stored.topic,))
        return super()._insert_events(c, stored_events, **kwargs)

    def outbox(self) -> list[str]:
        """The topics in the outbox, in order."""
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT topic FROM outbox ORDER BY position", ())
            return [row["topic"] for row in cursor.fetchall()]


class ShopRecorder(SessionRows, OutboxRecorder):
    """The shop's recorder with rows about sessions in front."""


class Shop(Application[UUID]):
    """The shop's application, on its own recorder."""

    env = {  # noqa: RUF012 - the framework's way to configure an application
        "PERSISTENCE_MODULE": "eventsourcing.sqlite",
        "APPLICATION_RECORDER_TOPIC": f"{__name__}:ShopRecorder",
    }


def main() -> None:
    """Append a message twice under one id: it is stored once, with one line in the outbox."""
    with TemporaryDirectory() as folder:
        shop = Shop({"SQLITE_DBNAME": str(Path(folder) / "shop.db")})
        sessions = SessionService(shop)
        sessions.create("ada-1")
        for _ in range(2):
            said = sessions.append_message("ada-1", Message.user("Tea, please."), event_id="mail-17")
            print(f"{said.id}: {'held already' if said.is_repeat else 'stored'}")
        print(f"sessions: {[row.session_id for row in sessions.list_sessions()]}")
        print(f"event ids are kept as {sessions.capabilities.event_ids}")
        recorder = cast("ShopRecorder", shop.recorder)
        print(f"outbox: {[topic.partition(':')[2] for topic in recorder.outbox()]}")
        shop.close()


if __name__ == "__main__":
    main()
