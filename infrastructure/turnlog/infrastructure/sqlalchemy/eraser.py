"""Erasing behind `eventsourcing-sqlalchemy`: stubs or markers over the events, then cleaning."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.persistence import IntegrityError, PersistenceError, StoredEvent
from eventsourcing_sqlalchemy.recorders import SQLAlchemyApplicationRecorder
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    Uuid,
    bindparam,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from turnlog.application.erasing import Erased, SessionEraser, gathered
from turnlog.application.storage import storage_errors
from turnlog.application.stored_events import event_if_readable, event_of, target_of
from turnlog.domain.errors import StorageError
from turnlog.domain.events import ContentRedacted, EventErased, SessionDeleted, as_uuid
from turnlog.infrastructure.sqlalchemy.cleaning import Cleaner

DONE: Final = 0
COPIES: Final = 1
"""Overwritten; old copies may be left."""
MORE: Final = 2
"""Overwritten; old copies may be left where only a rewriting reaches."""

_UNCOMMITTED: Final = (
    "The session was deleted in a transaction of the application's own: commit it, then run a sweep."
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SqlalchemyEraser(SessionEraser):
    """Overwrites deleted sessions behind the write of their tombstone.

    On an application that shares its own scoped session, overwriting is part of its transaction; what is
    left to do then, a sweep does.
    """

    def __init__(
        self, recorder: SQLAlchemyApplicationRecorder, app: Application[UUID], cleaner: Cleaner
    ) -> None:
        self._recorder = recorder
        self._datastore = recorder.datastore
        self._is_scoped = vars(recorder.datastore)["scoped_session"] is not None
        self._mapper = app.mapper
        self._cleaner = cleaner
        self._events = cast("Table", vars(recorder.events_record_cls)["__table__"])
        self._erasures = Table(
            f"{recorder.events_table_name}_erasures",
            MetaData(schema=recorder.schema_name),
            Column("position", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
            Column("originator_id", Uuid(), nullable=False, unique=True),
            Column("deleted_at", BigInteger(), nullable=False),
            Column("version", BigInteger(), nullable=False),
            Column("pending", Integer(), nullable=False),
        )
        self._redactions = Table(
            f"{recorder.events_table_name}_redactions",
            MetaData(schema=recorder.schema_name),
            Column("position", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
            Column("originator_id", Uuid(), nullable=False),
            Column("version", BigInteger(), nullable=False),
            Column("pending", Integer(), nullable=False),
            UniqueConstraint("originator_id", "version"),
        )

    def has_table(self, *, create: bool) -> bool:
        """Whether the tables of erasures and redactions are there, made now if that is wished."""
        tables = (self._erasures, self._redactions)
        with _errors():
            for table in tables if create else ():
                with suppress(DBAPIError):  # another process made it meanwhile, or it may not be made
                    table.create(self._engine, checkfirst=True)
            return all(inspect(self._engine).has_table(one.name, schema=one.schema) for one in tables)

    def erase(self, aggregate_id: UUID) -> None:
        """Overwrite the events in front of the tombstone."""
        newest = next(iter(self._recorder.select_events(aggregate_id, desc=True, limit=1)), None)
        tombstone: object = None if newest is None else event_of(self._mapper, newest)
        if isinstance(tombstone, SessionDeleted) and not tombstone.keeps_content:
            try:
                with self._transaction() as connection:
                    self._overwrite(connection, aggregate_id, tombstone)
            except IntegrityError:  # another process overwrote it meanwhile
                if self._is_scoped:
                    raise

    @property
    def redacts(self) -> bool:
        """It can."""
        return True

    def redact(self, redactions: Sequence[ContentRedacted]) -> None:
        """Put its marker over the content of each event that is named."""
        if failures := self._redact(redactions):
            raise failures[0]

    def complete(self) -> Sequence[StorageError]:
        """Overwrite what nothing is remembered of."""
        failures: list[StorageError] = []
        for aggregate_id in self._not_overwritten():
            with gathered(failures):
                self.erase(aggregate_id)
        return failures + self._redact(self._not_redacted())

    def scrub(self) -> str | None:
        """Remove old copies, once what asks for it is committed."""
        with self._transaction(commit=False) as connection:
            overwritten = self._waiting(connection, COPIES, MORE)
            rewrite = any(self._waiting(connection, MORE))
        with _errors():
            if self._is_scoped:
                with self._engine.connect() as connection:
                    if self._waiting(connection, COPIES, MORE) != overwritten:
                        return _UNCOMMITTED
            if not any(overwritten):
                return None
            reason = self._cleaner.clean(self._engine, self._events, self._tables, rewrite=rewrite)
        if reason is None:
            with self._transaction() as connection:
                for table, positions in zip(self._tables, overwritten, strict=True):
                    done = update(table).where(table.c.position.in_(positions))
                    connection.execute(done.values(pending=DONE))
        return reason

    def pending(self) -> int:
        """Of how many deletions and redactions something may be left; what was not overwritten is now."""
        failures = self.complete()
        with self._transaction(commit=False) as connection:
            return len(failures) + sum(map(len, self._waiting(connection, COPIES, MORE)))

    def purge(self, before: datetime) -> int:  # noqa: ARG002 - the port's argument
        """Nothing: this recorder could not refuse a write to a purged stream."""
        return 0

    def erased(self) -> Iterable[Erased]:
        """Every session that was erased from this database."""
        columns = self._erasures.c
        with self._transaction(commit=False) as connection:
            wanted = select(columns.originator_id, columns.deleted_at).order_by(columns.position)
            rows = connection.execute(wanted)
            return [Erased(row[0], _EPOCH + timedelta(microseconds=row[1])) for row in rows]

    def _overwrite(self, connection: Connection, aggregate_id: UUID, tombstone: SessionDeleted) -> None:
        of_stream = self._events.c.originator_id == aggregate_id
        known = select(self._erasures.c.position).where(self._erasures.c.originator_id == aggregate_id)
        if connection.execute(known).first() is not None:
            return
        self._cleaner.begin(connection)
        more = self._cleaner.leaves_more(connection, self._events, aggregate_id)
        stubs = [
            self._mapper.to_stored_event(
                EventErased(
                    originator_id=tombstone.originator_id,
                    originator_version=version,
                    timestamp=tombstone.timestamp,
                )
            )
            for version in range(tombstone.originator_version)
        ]
        connection.execute(
            update(self._events)
            .where(of_stream, self._events.c.originator_version == bindparam("place"))
            .values(topic=bindparam("stub"), state=bindparam("nothing")),
            [{"place": one.originator_version, "stub": one.topic, "nothing": one.state} for one in stubs],
        )
        connection.execute(
            self._erasures.insert().values(
                originator_id=aggregate_id,
                deleted_at=(tombstone.timestamp - _EPOCH) // _MICROSECOND,
                version=tombstone.originator_version,
                pending=MORE if more else COPIES,
            )
        )

    def _redact(self, redactions: Sequence[ContentRedacted]) -> list[StorageError]:
        """Put the markers over these contents; those for which that cannot be done keep no other from it."""
        failures: list[StorageError] = []
        if redactions:
            with self._transaction() as connection:
                for redaction in redactions:
                    with gathered(failures):
                        self._overwrite_content(connection, as_uuid(redaction.originator_id), redaction)
        return failures

    def _overwrite_content(
        self, connection: Connection, aggregate_id: UUID, redaction: ContentRedacted
    ) -> None:
        known = select(self._redactions.c.position).where(
            self._redactions.c.originator_id == aggregate_id,
            self._redactions.c.version == redaction.originator_version,
        )
        if connection.execute(known).first() is not None:
            return
        self._cleaner.begin(connection)
        more = self._cleaner.leaves_more(connection, self._events, aggregate_id)
        of_event = (
            self._events.c.originator_id == aggregate_id,
            self._events.c.originator_version == redaction.redacted_version,
        )
        wanted = select(self._events.c.topic, self._events.c.state).where(*of_event)
        row = connection.execute(wanted).first()
        version = redaction.redacted_version
        stored = None if row is None else StoredEvent(aggregate_id, version, row[0], row[1])
        stored, target = target_of(redaction, stored, self._mapper)
        if not target.is_redacted:
            marked = self._mapper.to_stored_event(target.redacted_by(redaction))
            connection.execute(update(self._events).where(*of_event).values(state=marked.state))
            more = more or len(marked.state) > len(stored.state)
        connection.execute(
            self._redactions.insert().values(
                originator_id=aggregate_id,
                version=redaction.originator_version,
                pending=MORE if more else COPIES,
            )
        )

    def _not_redacted(self) -> list[ContentRedacted]:
        """Redactions that are recorded and of which nothing is remembered."""
        events, redactions = self._events.c, self._redactions.c
        remembered = select(redactions.position).where(
            redactions.originator_id == events.originator_id, redactions.version == events.originator_version
        )
        with self._transaction(commit=False) as connection:
            found = connection.execute(
                select(events.originator_id, events.originator_version, events.topic, events.state).where(
                    events.topic == ContentRedacted.TOPIC, ~remembered.exists()
                )
            ).all()
        events_found = (event_if_readable(self._mapper, StoredEvent(*row)) for row in found)
        return [event for event in events_found if isinstance(event, ContentRedacted)]

    def _not_overwritten(self) -> list[UUID]:
        """Streams with a tombstone of which nothing is remembered; those too that keep their content."""
        events, erasures = self._events.c, self._erasures.c
        remembered = select(erasures.position).where(erasures.originator_id == events.originator_id)
        with self._transaction(commit=False) as connection:
            found = connection.execute(
                select(events.originator_id).where(events.topic == SessionDeleted.TOPIC, ~remembered.exists())
            )
            return [row[0] for row in found]

    @property
    def _tables(self) -> tuple[Table, Table]:
        return self._erasures, self._redactions

    def _waiting(self, connection: Connection, *pending: int) -> list[set[int]]:
        """By table the places of what is in one of these states."""
        wanted = (select(table.c.position).where(table.c.pending.in_(pending)) for table in self._tables)
        return [{row[0] for row in connection.execute(one)} for one in wanted]

    @property
    def _engine(self) -> Engine:
        bind: Any = self._datastore.engine
        return bind if isinstance(bind, Engine) else bind.engine

    @contextmanager
    def _transaction(self, *, commit: bool = True) -> Generator[Connection]:
        """A transaction of the datastore, or what the application's own session is in."""
        with _errors(), self._datastore.transaction(commit=commit) as session:
            yield session.connection()


@contextmanager
def _errors() -> Generator[None]:
    """Raise what SQLAlchemy says as an error of turnlog."""
    with storage_errors():
        try:
            yield
        except SQLAlchemyError as error:
            raise PersistenceError(str(error)) from error
