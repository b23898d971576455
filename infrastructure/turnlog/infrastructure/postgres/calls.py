"""Calls of the functions that append, without what a cursor costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from psycopg import Connection, errors, generators
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

Argument: TypeAlias = str | int | bytes | bytearray | memoryview | None

AS_TEXT: Final = 0
"""How an id, a number or a time is sent."""

AS_BYTES: Final = 1
"""How bytes, text and JSON are sent, of which nothing ends at a NUL."""

_NOT_PREPARED = str(errors.InvalidSqlStatementName.sqlstate).encode()

_numbers = count(1)


class Call:
    """Calls a function that returns numbers; each call is a transaction, and prepared once on a connection.

    A cursor finds out anew what each argument is, and keeps the query, a description and rows that nobody
    asks for: it takes the client's processor three times as long.
    """

    def __init__(self, function: str, forms: Sequence[int]) -> None:
        places = ", ".join(f"${place}" for place in range(1, len(forms) + 1))
        self._name = f"turnlog_{next(_numbers)}".encode()
        self._statement = f"SELECT {function}({places})".encode()
        self._forms = forms
        self._prepared = WeakSet[Connection[Any]]()

    def __call__(self, connection: Connection[Any], *arguments: Argument) -> list[int]:
        """What the function returns, on a connection that is in no transaction. Raises `psycopg.Error`."""
        encoding = connection.info.encoding.replace("ascii", "utf-8")  # as a cursor does: no conversion
        values = [_encoded(argument, encoding) for argument in arguments]
        result = self._run(connection, values)
        if result.error_field(DiagnosticField.SQLSTATE) == _NOT_PREPARED:
            self._prepared.discard(connection)  # a cursor dropped all that is prepared, as behind a rollback
            result = self._run(connection, values)
        if result.status != ExecStatus.TUPLES_OK:
            raise errors.error_from_result(result, encoding)
        return [int(result.get_value(row, 0) or b"") for row in range(result.ntuples)]

    def _run(self, connection: Connection[Any], values: Sequence[bytes | None]) -> PGresult:
        if connection.prepare_threshold is None:  # a pooler in between may not know what is prepared
            connection.pgconn.send_query_params(self._statement, values, param_formats=self._forms)
        else:
            if connection not in self._prepared:
                self._prepare(connection)
            connection.pgconn.send_query_prepared(self._name, values, self._forms)
        return _answer(connection)

    def _prepare(self, connection: Connection[Any]) -> None:
        self._prepared.add(connection)  # before: of who is interrupted nobody knows whether the server did it
        connection.pgconn.send_prepare(self._name, self._statement)
        result = _answer(connection)
        if result.status != ExecStatus.COMMAND_OK:
            self._prepared.discard(connection)
            raise errors.error_from_result(result, connection.info.encoding)


def _answer(connection: Connection[Any]) -> PGresult:
    """What the server says to what was sent; an interruption by the user cancels it."""
    results: list[PGresult] = connection.wait(generators.execute(connection.pgconn))
    return results[-1]


def _encoded(argument: Argument, encoding: str) -> bytes | None:
    if argument is None or isinstance(argument, bytes):
        return argument
    if isinstance(argument, str):  # never `str` of it, which for a member of an enumeration is its name
        return argument.encode(encoding)
    if isinstance(argument, int):
        return b"%d" % argument
    return bytes(argument)  # a compressor or a cipher may give a `bytearray` or a `memoryview`
