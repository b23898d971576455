"""The tables and functions of the rows about sessions in PostgreSQL, and what they are called.

Every application has tables of its own there, named after its table of events, and so are these. No index is
over text of messages or metadata: what is indexed of them are numbers, so nothing is too long for an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString

from eventsourcing.postgres import PostgresApplicationRecorder, PostgresRecorder
from psycopg import Cursor, sql
from psycopg.rows import DictRow

from turnlog.application import storage
from turnlog.application.projections.batches import OUR_TOPICS
from turnlog.infrastructure.postgres.calls import AS_BYTES, AS_TEXT

FORM: Final = 5
"""The form of the functions. Those of another form stand beside them, for processes of another release."""

_TABLES: Final = {
    "ids": "event_ids",
    "sessions": "sessions",
    "ended": "ended",
    "metadata": "metadata",
    "by_metadata": "by_metadata",
    "recall": "recall",
    "recall_mark": "recall_mark",
    "erasures": "erasures",
    "redactions": "redactions",
    "tracking": "tracking",
    "due": "due",
    "read_models": "read_models",
}

_FUNCTIONS: Final = {
    "write_rows": "rows",
    "append": "append",
    "append_one": "append_one",
    "erase": "erase",
    "fence": "fence",
}

CREATE_TABLES: Final[tuple[LiteralString, ...]] = (
    """
    CREATE TABLE IF NOT EXISTS {ids} (
        aggregate_id uuid NOT NULL,
        event_id text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        PRIMARY KEY (aggregate_id, event_id)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {sessions} (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        aggregate_id uuid NOT NULL UNIQUE,
        namespace text COLLATE "C" NOT NULL,
        salt bigint NOT NULL,
        session_id text COLLATE "C" NOT NULL,
        created_at bigint NOT NULL,
        modified_at bigint NOT NULL,
        expires_at bigint,
        idle bigint,
        version bigint NOT NULL,
        head text COLLATE "C" NOT NULL,
        messages bigint NOT NULL
    ) WITH (fillfactor = 70)
    """,
    """
    CREATE TABLE IF NOT EXISTS {ended} (
        position bigint PRIMARY KEY,
        aggregate_id uuid NOT NULL UNIQUE,
        version bigint NOT NULL,
        head text COLLATE "C" NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS {sessions_by_id} ON {sessions} (namespace, session_id)",
    "CREATE INDEX IF NOT EXISTS {sessions_newest} ON {sessions} (namespace, position)",
    """
    CREATE INDEX IF NOT EXISTS {sessions_by_expiry} ON {sessions} (expires_at)
        WHERE expires_at IS NOT NULL
    """,
    """
    CREATE TABLE IF NOT EXISTS {metadata} (
        position bigint PRIMARY KEY,
        content text NOT NULL,
        hashes bigint[] NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {by_metadata} (
        hash bigint NOT NULL,
        position bigint NOT NULL,
        PRIMARY KEY (hash, position)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {recall} (
        position bigint NOT NULL,
        first bigint NOT NULL,
        last bigint NOT NULL,
        grams int[] NOT NULL,
        PRIMARY KEY (position, first)
    )
    """,
    """
    CREATE INDEX IF NOT EXISTS {recall_grams} ON {recall} USING gin (grams)
        WITH (fastupdate = on, gin_pending_list_limit = 1024)
    """,
    """
    CREATE TABLE IF NOT EXISTS {recall_mark} (
        position bigint PRIMARY KEY,
        indexed bigint NOT NULL,
        rule int NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {erasures} (
        aggregate_id uuid PRIMARY KEY,
        deleted_at bigint NOT NULL,
        version bigint NOT NULL,
        transaction xid NOT NULL,
        pending boolean NOT NULL DEFAULT true,
        purged boolean NOT NULL DEFAULT false
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {redactions} (
        aggregate_id uuid NOT NULL,
        version bigint NOT NULL,
        transaction xid NOT NULL,
        pending boolean NOT NULL DEFAULT true,
        PRIMARY KEY (aggregate_id, version)
    )
    """,
)

WRITE_ROWS: Final[LiteralString] = """
    CREATE FUNCTION {write_rows}(changes json, entries json) RETURNS void LANGUAGE plpgsql AS $BODY$
    DECLARE
        change record;
        place bigint;
    BEGIN
        IF entries IS NOT NULL THEN
            INSERT INTO {ids} (aggregate_id, event_id, version)
                SELECT aggregate_id, event_id, version
                FROM json_to_recordset(entries) AS entry (aggregate_id uuid, event_id text, version bigint);
        END IF;
        FOR change IN
            SELECT * FROM json_to_recordset(changes) AS change (
                aggregate_id uuid, first bigint, version bigint, head text, at bigint, messages bigint,
                active_at bigint, opened_at bigint, namespace text, salt bigint, session_id text, idle bigint,
                moves_expiry boolean, expires_at bigint,
                describes boolean, metadata text, hashes bigint[], deleted boolean
            )
        LOOP
            IF change.opened_at IS NOT NULL THEN
                IF change.first IS NOT NULL AND EXISTS (
                    SELECT 1 FROM {events} WHERE originator_id = change.aggregate_id::{id_type}
                ) THEN
                    RAISE unique_violation USING MESSAGE = 'Events of the session are stored already.';
                END IF;
                INSERT INTO {sessions} (
                    aggregate_id, namespace, salt, session_id, created_at, modified_at, expires_at, idle,
                    version, head, messages
                ) VALUES (
                    change.aggregate_id, change.namespace, change.salt, change.session_id, change.opened_at,
                    change.at, COALESCE(change.active_at + change.idle, change.expires_at), change.idle,
                    change.version, change.head, change.messages
                ) RETURNING position INTO place;
            ELSE
                UPDATE {sessions} SET
                    version = change.version,
                    head = change.head,
                    modified_at = change.at,
                    messages = messages + change.messages,
                    expires_at = COALESCE(
                        change.active_at + idle,
                        CASE WHEN change.moves_expiry THEN change.expires_at ELSE expires_at END
                    )
                WHERE aggregate_id = change.aggregate_id AND (version < change.first OR change.first IS NULL)
                RETURNING position INTO place;
                IF place IS NULL THEN
                    IF EXISTS (SELECT 1 FROM {sessions} WHERE aggregate_id = change.aggregate_id)
                            AND NOT EXISTS (
                                SELECT 1 FROM {events} WHERE originator_id = change.aggregate_id::{id_type}
                                    AND originator_version BETWEEN change.first AND change.version
                            ) THEN
                        RAISE data_corrupted USING MESSAGE = {end_is_gone};
                    END IF;
                    IF EXISTS (SELECT 1 FROM {ended} WHERE aggregate_id = change.aggregate_id) THEN
                        RAISE unique_violation USING MESSAGE = 'The session was deleted.';
                    END IF;
                    CONTINUE; -- a stream that is no session's, as that of passes, or a version that is taken
                END IF;
            END IF;
            IF change.describes OR change.deleted THEN
                DELETE FROM {by_metadata} USING {metadata}
                    WHERE {metadata}.position = place AND {by_metadata}.position = place
                        AND hash = ANY (hashes);
                DELETE FROM {metadata} WHERE position = place;
            END IF;
            IF change.deleted THEN
                INSERT INTO {ended} VALUES (place, change.aggregate_id, change.version, change.head);
                DELETE FROM {sessions} WHERE position = place;
                DELETE FROM {recall} WHERE position = place;
                DELETE FROM {recall_mark} WHERE position = place;
                DELETE FROM {ids} WHERE aggregate_id = change.aggregate_id;
            ELSIF change.metadata IS NOT NULL THEN
                INSERT INTO {metadata}
                    SELECT place, change.metadata, ARRAY(SELECT DISTINCT unnest(change.hashes) # salt)
                    FROM {sessions} WHERE position = place;
                INSERT INTO {by_metadata} SELECT unnest(hashes), position FROM {metadata}
                    WHERE position = place;
            END IF;
        END LOOP;
    END
    $BODY$
"""
"""Writes the rows that follow from new events, in their transaction and in front of them.

Of a version that is taken in the log the insert says so; one that only the row tells of is gone. Without
`first` the events are stored already, and nothing is refused.
"""

APPEND: Final[LiteralString] = """
    CREATE FUNCTION {append}(
        events json, states bytea, changes json, entries json, patience text
    ) RETURNS SETOF bigint LANGUAGE plpgsql AS $BODY$
    BEGIN
        PERFORM set_config('lock_timeout', patience, true), set_config('turnlog.rows', 'on', true);
        LOCK TABLE {events} IN EXCLUSIVE MODE;
        NOTIFY {channel};
        IF changes IS NOT NULL THEN
            PERFORM {write_rows}(changes, entries);
        END IF;
        RETURN QUERY
            INSERT INTO {events} (originator_id, originator_version, topic, state)
            SELECT id, version, topic, substring(states FROM first FOR size)
            FROM json_to_recordset(events)
                AS event (id {id_type}, version bigint, topic text, first int, size int)
            RETURNING notification_id;
    END
    $BODY$
"""
"""Inserts events and their rows in one round trip, in the order of their notification ids."""

APPEND_FORMS: Final = (AS_BYTES,) * 5

APPEND_ONE: Final[LiteralString] = """
    CREATE FUNCTION {append_one}(
        stream {id_type}, place bigint, kind text, content bytea,
        chain text, at bigint, added bigint, active_at bigint, entry text, patience text
    ) RETURNS bigint LANGUAGE plpgsql AS $BODY$
    DECLARE
        notification bigint;
        setting text;
    BEGIN
        IF patience <> '0s' THEN
            setting := set_config('lock_timeout', patience, true);
        END IF;
        setting := set_config('turnlog.rows', 'on', true);
        LOCK TABLE {events} IN EXCLUSIVE MODE;
        NOTIFY {channel};
        INSERT INTO {events} (originator_id, originator_version, topic, state)
            VALUES (stream, place, kind, content) RETURNING notification_id INTO notification;
        IF entry IS NOT NULL THEN
            INSERT INTO {ids} VALUES (stream::uuid, entry, place);
        END IF;
        UPDATE {sessions} SET
            version = place,
            head = chain,
            modified_at = at,
            messages = messages + added,
            expires_at = COALESCE(active_at + idle, expires_at)
        WHERE aggregate_id = stream::uuid AND version < place;
        IF NOT FOUND THEN
            IF EXISTS (SELECT 1 FROM {sessions} WHERE aggregate_id = stream::uuid) THEN
                RAISE data_corrupted USING MESSAGE = {end_is_gone};
            END IF;
            IF EXISTS (SELECT 1 FROM {ended} WHERE aggregate_id = stream::uuid) THEN
                RAISE unique_violation USING MESSAGE = 'The session was deleted.';
            END IF;
        END IF;
        RETURN notification;
    END
    $BODY$
"""
"""What `append` does, cheaper, for one event that only moves its session on, as most writes are.

PL/pgSQL runs a query for each PERFORM, which an assignment spares, and for a condition that has a query in
it, whatever stands before that one: hence an IF inside an IF, which takes a seventh off the server's work.
"""

APPEND_ONE_FORMS: Final = (
    *(AS_TEXT, AS_TEXT, AS_BYTES, AS_BYTES),
    *(AS_BYTES, AS_TEXT, AS_TEXT, AS_TEXT, AS_BYTES, AS_BYTES),
)

ERASE: Final[LiteralString] = """
    CREATE FUNCTION {erase}(
        erased {id_type}, events bigint, tombstone bigint, stub_topic text, stubs bytea[], at bigint
    ) RETURNS void LANGUAGE plpgsql AS $BODY$
    BEGIN
        UPDATE {events} SET
            topic = stub_topic, state = stubs[least(originator_version + 1, cardinality(stubs))]
            WHERE originator_id = erased AND originator_version < events;
        INSERT INTO {erasures} (aggregate_id, deleted_at, version, transaction)
            VALUES (erased::uuid, at, tombstone, pg_current_xact_id()::xid);
    END
    $BODY$
"""
"""Puts stubs over the events of a session in the transaction that writes its tombstone. Those that the log
has lost need none."""

FENCE: Final[LiteralString] = """
    CREATE FUNCTION {fence}() RETURNS trigger LANGUAGE plpgsql AS $BODY$
    BEGIN
        IF current_setting('turnlog.rows', true) IS DISTINCT FROM 'on'
                AND starts_with(NEW.topic, {topics}) THEN
            RAISE integrity_constraint_violation USING MESSAGE = {said};
        END IF;
        RETURN NEW;
    END
    $BODY$
"""

LEAVE: Final[LiteralString] = "SELECT set_config('turnlog.rows', 'on', true)"
"""Lets the transaction write events of sessions: its rows are written in it."""

_RAISE_FENCE: Final[LiteralString] = """
    CREATE TRIGGER turnlog_fence BEFORE INSERT ON {events} FOR EACH ROW EXECUTE FUNCTION {fence}()
"""
"""Who writes no rows writes no events of sessions, where rows are kept. A host's own aggregates pass."""

_FENCE: Final[LiteralString] = (
    "SELECT has_table_privilege(%(table)s::regclass, 'TRIGGER') AND NOT EXISTS ("
    "SELECT 1 FROM pg_trigger WHERE tgrelid = %(table)s::regclass AND tgname = 'turnlog_fence') AS is_due"
)

_HAS_ROWS: Final[LiteralString] = """
    SELECT EXISTS (SELECT FROM unnest(%(tables)s::text[]) AS name WHERE to_regclass(name) IS NOT NULL)
        OR EXISTS (
            SELECT FROM pg_trigger WHERE tgrelid = to_regclass(%(events)s) AND tgname = 'turnlog_fence'
        ) AS found
"""

_MISSING: Final[LiteralString] = """
    SELECT place FROM unnest(%s::text[]) WITH ORDINALITY AS held (name, place)
    WHERE to_regclass(name) IS NULL ORDER BY place
"""

CREATE_FUNCTIONS: Final[dict[str, LiteralString]] = {
    "write_rows": WRITE_ROWS,
    "append": APPEND,
    "append_one": APPEND_ONE,
    "erase": ERASE,
    "fence": FENCE,
}


class Names:
    """Names of tables in a schema, and statements about them."""

    def __init__(self, schema: str, tables: Mapping[str, str]) -> None:
        for name in tables.values():
            PostgresRecorder.check_identifier_length(name)
        self.schema = schema
        self.tables = dict(tables)
        self.names: dict[str, sql.Composable] = {
            name: sql.Identifier(schema, table) for name, table in tables.items()
        }
        self._statements: dict[str, bytes] = {}

    def sql(self, statement: LiteralString) -> bytes:
        """The statement with these names in it."""
        if statement not in self._statements:
            self._statements[statement] = sql.SQL(statement).format(**self.names).as_bytes()
        return self._statements[statement]

    def regclass(self, name: str) -> str:
        """What `to_regclass` takes for this table."""
        return self.names[name].as_string()

    def missing(self, cursor: Cursor[DictRow], names: Sequence[str]) -> list[str]:
        """Those of these tables that are not there."""
        rows = cursor.execute(_MISSING, ([self.regclass(name) for name in names],)).fetchall()
        return [names[int(row["place"]) - 1] for row in rows]


class Tables(Names):
    """The names of one application's tables and functions.

    `kind` is in the names of tables that are another set than those of `SessionRows`. With `beside` they are
    in another schema, the events not.
    """

    def __init__(
        self, schema: str, events_table: str, id_type: str, kind: str = "", *, beside: str | None = None
    ) -> None:
        prefix = f"{events_table.removesuffix('_events')}_turnlog_{kind}"
        place = beside or schema
        super().__init__(place, {name: prefix + table for name, table in _TABLES.items()})
        functions = {name: f"{prefix}{function}_{FORM}" for name, function in _FUNCTIONS.items()}
        indexes = {
            "sessions_by_id": f"{prefix}sessions_by_id",
            "sessions_newest": f"{prefix}sessions_newest",
            "sessions_by_expiry": f"{prefix}sessions_by_expiry",
            "recall_grams": f"{prefix}recall_grams",
        }
        for name in (events_table, *functions.values(), *indexes.values()):
            PostgresRecorder.check_identifier_length(name)
        self.functions = functions
        self._lock_name = f"{schema}.{prefix}"
        self.names["events"] = sql.Identifier(schema, events_table)
        self.names["id_type"] = sql.Identifier(id_type)
        self.names["channel"] = sql.Identifier(events_table.replace(".", "_"))
        self.names["topics"] = sql.Literal(OUR_TOPICS)
        self.names["said"] = sql.Literal(storage.FENCE)
        self.names["end_is_gone"] = sql.Literal(storage.END_IS_GONE)
        for name, function in functions.items():
            self.names[name] = sql.Identifier(place, function)
        for name, index in indexes.items():
            self.names[name] = sql.Identifier(index)

    def regproc(self, name: str) -> str:
        """What `to_regproc` takes for this function."""
        return self.names[name].as_string()

    def are_kept(self, cursor: Cursor[DictRow]) -> bool:
        """Whether any of them is there, or the fence: a store with rows about sessions, whatever it lost."""
        places = {"tables": [self.regclass(name) for name in _TABLES], "events": self.regclass("events")}
        row = cursor.execute(_HAS_ROWS, places).fetchone()
        return row is not None and bool(row["found"])

    def create(self, cursor: Cursor[DictRow]) -> None:
        """Create the tables and functions that are missing."""
        for statement in CREATE_TABLES:
            cursor.execute(self.sql(statement), prepare=False)
        for name, statement in CREATE_FUNCTIONS.items():
            if is_missing(cursor, "to_regproc", self.regproc(name)):
                cursor.execute(self.sql(statement), prepare=False)

    def raise_fence(self, cursor: Cursor[DictRow]) -> None:
        """From now on let nobody write events of sessions who does not write their rows."""
        row = cursor.execute(_FENCE, {"table": self.regclass("events")}).fetchone()
        if row is not None and row["is_due"]:
            cursor.execute(self.sql(_RAISE_FENCE), prepare=False)

    def drop(self, cursor: Cursor[DictRow]) -> None:
        """Drop the tables of this kind and their functions, but for the events."""
        for name in _TABLES:
            cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.names[name]), prepare=False)
        for name in _FUNCTIONS:
            cursor.execute(sql.SQL("DROP FUNCTION IF EXISTS {}").format(self.names[name]), prepare=False)

    def one_at_a_time(self, cursor: Cursor[DictRow]) -> None:
        """Let processes that start at once create one behind the other: PostgreSQL fails them otherwise."""
        one_at_a_time(cursor, self._lock_name)


def of_recorder(
    recorder: PostgresApplicationRecorder, kind: str = "", *, beside: str | None = None
) -> Tables:
    """The tables about the sessions of this recorder, or such tables in another schema."""
    datastore = recorder.datastore
    id_type = datastore.originator_id_type
    return Tables(datastore.schema, recorder.events_table_name, id_type, kind, beside=beside)


def one_at_a_time(cursor: Cursor[DictRow], name: str) -> None:
    """Take the lock of this name until the transaction ends, and see what others created until then.

    PostgreSQL remembers for a connection which tables there are, and hears of others' when it opens one.
    """
    cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,), prepare=False)
    cursor.execute("SELECT FROM pg_catalog.pg_class LIMIT 0", prepare=False)


def is_missing(cursor: Cursor[DictRow], look_up: LiteralString, name: str) -> bool:
    """Whether there is no such table (`to_regclass`) or function (`to_regproc`)."""
    select: LiteralString = f"SELECT {look_up}(%s) IS NULL AS missing"
    row = cursor.execute(select, (name,)).fetchone()
    return row is not None and bool(row["missing"])
