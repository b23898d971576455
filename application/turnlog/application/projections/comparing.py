"""The read models of a store compared with what its log leads to, row by row, whatever database has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from turnlog.application.ledger import LEDGER_MODEL
from turnlog.application.projections.errors import LOST
from turnlog.application.projections.maintaining import ERASURES, Comparison, Difference, Progress
from turnlog.application.projections.replaying import Builder, StoredLog

C = TypeVar("C")

Rows: TypeAlias = Mapping[UUID, Sequence[Mapping[str, Any]]]
"""By session some rows, with their columns by name."""

MOST: Final = 1000
"""Differences of one model that are named."""

LOG: Final = "log"
"""What the log is called beside the models."""

_NAMED: Final = 3
"""Events that are named of many rows of one session."""

_COLUMNS: Final = 2
"""Columns that are named of a row; how many others differ is said."""

_LONGEST: Final = 20
"""Characters of a value that are shown."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Unequal:
    """Rows of one kind that only the store has, and those that only the replay has.

    Those of an event are known by its `event_id`. `kind` and `kinds` say what one and several of them are.
    """

    kind: str
    kinds: str
    stored: Rows
    derived: Rows


@dataclass(frozen=True)
class Indexed:
    """Messages of a session, from one version to another, that are indexed wrongly or not at all."""

    aggregate_id: UUID | None
    first: int
    last: int
    is_missing: bool

    def told(self) -> str:
        """What is said of them."""
        what = "not indexed" if self.is_missing else "indexed as the log does not have them"
        if self.first == self.last:
            return f"message {self.first} is {what.replace('them', 'it')}"
        return f"messages {self.first} to {self.last} are {what}"


class ComparedRows(ABC, Generic[C]):
    """The rows of a store, and those that a replay made beside them."""

    @abstractmethod
    def unusable(self, cursor: C) -> Iterator[tuple[str, str]]:
        """By name models that cannot be compared, as they were made by another rule or are gone: why not."""

    @abstractmethod
    def unequal(self, cursor: C, model: str) -> Iterator[Unequal]:
        """What differs between the rows of a model."""

    @abstractmethod
    def of_recall(self, cursor: C) -> Iterator[Indexed]:
        """What differs in the index, by session and version."""

    @abstractmethod
    def views(self, cursor: C, after: UUID | None) -> Sequence[tuple[UUID, int]]:
        """The next sessions of the replayed view behind this one, with their versions; none at the end."""

    @abstractmethod
    def view_versions(self, cursor: C, aggregate_id: UUID) -> list[int]:
        """The versions of the messages in a replayed view, in order."""

    @abstractmethod
    def name_of(self, cursor: C, aggregate_id: UUID) -> str | None:
        """The session id."""


@dataclass(frozen=True)
class Compared(Generic[C]):
    """One comparison, in one read of the store, by builders that have begun.

    `stops` says how far each model got that there is.
    """

    log: StoredLog[C]
    rows: ComparedRows[C]
    builders: Sequence[Builder[C]]
    stops: Mapping[str, int]

    def run(self, cursor: C, progress: Progress | None) -> Comparison:
        """Replay the log up to where each model stands, and compare it there."""
        newest = self.log.newest(cursor)
        stops, events = dict(self.stops), {0: 0}
        found: list[Difference] = []
        for name, why in self.rows.unusable(cursor):
            found.append(Difference(name, why))
            stops.pop(name, None)
        last = read = 0
        for stop in sorted({0, newest, *stops.values()}):
            while page := self.log.page(cursor, last, stop):
                for builder in self.builders:
                    builder.apply(cursor, page)
                last = page[-1].position
                read += self.log.events_in(page)
                if progress is not None:
                    progress(len(page))
            events[stop] = read
            for builder in self.builders:
                if stops.get(builder.name) == stop:
                    builder.settle(cursor, stop)
                    found += self._differences(cursor, builder.name, stop)
        found += self._repeated(cursor)
        found += self._unreadable(cursor)
        found += self._of_boundaries(cursor)
        return Comparison(
            differences=tuple(found),
            positions=stops,
            behind={name: read - events[stop] for name, stop in stops.items()},
            events=read,
        )

    def _differences(self, cursor: C, model: str, stop: int) -> Iterator[Difference]:
        if model == "recall":
            for one in _joined(self.rows.of_recall(cursor)):
                yield self._of_session(cursor, model, one.told(), one.aggregate_id)
            return
        told: dict[UUID, list[str]] = {}
        for unequal in self.rows.unequal(cursor, model):
            for aggregate_id, what in _told(unequal):
                if len(told) < MOST or aggregate_id in told:
                    told.setdefault(aggregate_id, []).append(what)
        for aggregate_id, details in told.items():
            if self.log.is_deleted_behind(cursor, aggregate_id, stop):
                continue  # what stood there then is not in the log any more
            yield self._of_session(cursor, model, "; ".join(dict.fromkeys(details)), aggregate_id)

    def _repeated(self, cursor: C) -> Iterator[Difference]:
        for one in self.log.repeated:
            what = f"id {one.event_id!r} is in the log twice, at versions {one.first} and {one.second}"
            yield self._of_session(cursor, LEDGER_MODEL, what, UUID(one.aggregate_id), version=one.second)

    def _unreadable(self, cursor: C) -> Iterator[Difference]:
        for position, (aggregate_id, version) in self.log.unreadable.items():
            one = self._of_session(
                cursor, LOG, f"event {version} cannot be read", aggregate_id, version=version
            )
            if one.session_id is None:
                one = replace(one, detail=f"{one.detail} (notification id {position})")
            yield one

    def _of_boundaries(self, cursor: C) -> Iterator[Difference]:
        """Sessions whose view by the ids that boundaries name is not the one that their events carry.

        Of a session of which an event cannot be read that is not known.
        """
        after: UUID | None = None
        damaged = {aggregate_id for aggregate_id, _ in self.log.unreadable.values()}
        while page := self.rows.views(cursor, after):
            for aggregate_id, version in page:
                if aggregate_id in damaged:
                    continue
                carried = self.log.carried_view(cursor, aggregate_id, version)
                by_ids = self.rows.view_versions(cursor, aggregate_id)
                if carried != by_ids:
                    holds = "no readable state" if carried is None else _shown(carried)
                    what = f"its boundaries lead to {_shown(by_ids)}, its events carry {holds}"
                    yield self._of_session(cursor, "boundaries", what, aggregate_id)
            after = page[-1][0]

    def _of_session(
        self, cursor: C, model: str, what: str, aggregate_id: UUID | None, *, version: int | None = None
    ) -> Difference:
        if aggregate_id is None:
            return Difference(model, what)
        name = self.rows.name_of(cursor, aggregate_id) or None
        return Difference(model, what, name, aggregate_id.hex, version)


def of_lost(lost: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Why models cannot be compared of which these tables are gone."""
    for model, names in lost.items():
        what = "rebuild" if model == ERASURES else f"rebuild {model}"
        gone = f"its table {names[0]} is" if len(names) == 1 else f"its tables {', '.join(names)} are"
        yield model, f"{gone} gone: run `turnlog {what}`"


def _joined(found: Iterable[Indexed]) -> Iterator[Indexed]:
    """The same, with versions that follow on each other in one."""
    last: Indexed | None = None
    for one in found:
        if (
            last is not None
            and replace(last, first=one.first, last=one.last) == one
            and (one.first == last.last + 1)
        ):
            last = replace(last, last=one.last)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def of_rule(model: str, made_by: int, rule: int) -> str:
    """Why a model cannot be compared that another rule than this code's made."""
    what = "its table is gone" if made_by == LOST else f"made by rule {made_by}, not {rule}"
    return f"{what}: run `turnlog rebuild {model}`"


def _told(unequal: Unequal) -> Iterator[tuple[UUID, str]]:
    """By session, what is on one side only."""
    for aggregate_id in dict.fromkeys((*unequal.stored, *unequal.derived)):
        one, other = unequal.stored.get(aggregate_id, ()), unequal.derived.get(aggregate_id, ())
        if len(one) == 1 and len(other) == 1 and _event_of(one[0]) == _event_of(other[0]):
            (stored,), (derived,) = one, other
            columns = [name for name in stored if stored[name] != derived[name]]
            named = [
                f"{name} is {_short(name, stored[name])}, not {_short(name, derived[name])}"
                for name in sorted(columns, key=("version", "messages").__contains__, reverse=True)
            ]
            left = len(named) - _COLUMNS
            more = [f"{left} more column{'' if left == 1 else 's'}"] if left > 0 else []
            yield aggregate_id, f"{_of_event(stored)}{'; '.join((*named[:_COLUMNS], *more))}"
        else:
            if one:
                yield aggregate_id, f"{_counted(unequal, one)} that the log does not have{_ids(one)}"
            if other:
                verb = "is" if len(other) == 1 else "are"
                yield aggregate_id, f"{_counted(unequal, other)} {verb} missing{_ids(other)}"


def _event_of(row: Mapping[str, Any]) -> str | None:
    return row.get("event_id")


def _of_event(row: Mapping[str, Any]) -> str:
    """Which event a row is of, in front of what is said about it."""
    event_id = _event_of(row)
    return "" if event_id is None else f"{event_id!r}: "


def _counted(unequal: Unequal, rows: Sequence[Mapping[str, Any]]) -> str:
    """How many rows these are."""
    return f"{len(rows)} {unequal.kind if len(rows) == 1 else unequal.kinds}"


def _ids(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of which events the first of them are."""
    ids = sorted(repr(event_id) for row in rows if (event_id := _event_of(row)) is not None)
    return f": {', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''}" if ids else ""


def _short(column: str, value: object) -> str:
    """A value of a row, so that it can be told from another."""
    if isinstance(value, int) and column.endswith("_at"):
        return (_EPOCH + timedelta(microseconds=value)).isoformat(" ", "milliseconds").removesuffix("+00:00")
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _shown(versions: list[int]) -> str:
    """A view in short."""
    some = ", ".join(map(str, versions[:8]))
    return f"a view of {len(versions)} messages ({some}{', …' if len(versions) > 8 else ''})"
