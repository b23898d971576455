"""What databases say, as errors of turnlog."""

from __future__ import annotations

import pytest
from eventsourcing.persistence import IntegrityError, InternalError, ProgrammingError
from psycopg.errors import DuplicateTable

from turnlog.application.storage import unlocked
from turnlog.domain import StorageLockedError


def _caused(error: Exception, cause: Exception) -> Exception:
    """The error as the framework raises it from one of the driver."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        InternalError("tuple concurrently updated"),
        IntegrityError('duplicate key value violates unique constraint "pg_type_typname_nsp_index"'),
        _caused(ProgrammingError('relation "sessions_events" already exists'), DuplicateTable()),
    ],
)
def test_processes_that_create_the_same_tables_at_once_try_again(error: Exception) -> None:
    left = [error]

    def create() -> str:
        if left:
            raise left.pop()
        return "created"

    assert unlocked(create) == "created"


def test_a_database_that_stays_locked_is_given_up() -> None:
    def create() -> None:
        raise InternalError("tuple concurrently updated")

    with pytest.raises(StorageLockedError):
        unlocked(create)


def test_a_conflict_of_versions_stays_what_it_is() -> None:
    def insert() -> None:
        raise IntegrityError('duplicate key value violates unique constraint "sessions_events_pkey"')

    with pytest.raises(IntegrityError):
        unlocked(insert)
