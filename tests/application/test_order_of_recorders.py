"""What stands in front of a recorder works; behind it nothing of it would be called, so that is refused."""

from __future__ import annotations

from types import new_class

import pytest
from eventsourcing.postgres import PostgresApplicationRecorder
from eventsourcing.sqlite import SQLiteApplicationRecorder

from turnlog.domain.errors import InvalidSettingError
from turnlog.infrastructure import postgres
from turnlog.infrastructure.sqlite import SessionRows, SqliteSubscriptions


class HostRecorder(SQLiteApplicationRecorder):
    """A recorder of a host."""


@pytest.mark.parametrize(
    ("recorder", "mixin"),
    [
        (SQLiteApplicationRecorder, SessionRows),
        (HostRecorder, SessionRows),
        (HostRecorder, SqliteSubscriptions),
        (PostgresApplicationRecorder, postgres.SessionRows),
    ],
)
def test_a_mixin_behind_the_recorder_is_refused_with_the_right_order(
    recorder: type[object], mixin: type[object]
) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        new_class("Rows", (recorder, mixin))
    assert f"class Rows({mixin.__name__}, {recorder.__name__})" in str(refused.value)


def test_a_class_that_derives_from_one_in_the_wrong_order_cannot_be_made_either() -> None:
    mine = new_class("Mine", (SessionRows,))
    with pytest.raises(InvalidSettingError, match=r"class Rows\(SessionRows, HostRecorder\)"):
        new_class("Rows", (HostRecorder, mine))


@pytest.mark.parametrize("mixin", [SessionRows, SqliteSubscriptions])
def test_a_mixin_in_front_of_the_recorder_is_taken(mixin: type[object]) -> None:
    assert issubclass(new_class("Rows", (mixin, HostRecorder)), HostRecorder)
