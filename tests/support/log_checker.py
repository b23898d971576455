"""An independent checker of the laws, which reads stored rows and uses nothing of the code that wrote them.

`check` judges one moment, `check_growth` two moments of one database, `check_journal` what writers were told.
Each returns what it found, as sentences; nothing found is an empty list. The rules are written here once
more, from their description: folding, projection, chain, ledger, directory and index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid5

from tests.support.stored_rows import Database, DirectoryRow, StoredRow

_ENTRIES = {"MessageAppended", "EventAppended", "Compacted", "CallAbandoned", "ContentRedacted"}
_NOT_IN_CHAIN = {"chain", "content", "salt", "commitment"}
_OWN_ID = re.compile(r"(0|[1-9][0-9]*)-[0-9a-f]{20}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_LAG = 128
"""Events that an SQLite file may hold and not have indexed yet, by its description."""


@dataclass(frozen=True)
class Said:
    """A message of the log, as far as the rules look at it."""

    id: str
    version: int
    role: str
    branch: str | None
    synthetic: bool
    calls: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def is_conversation(self) -> bool:
        """Neither written by a compaction nor a system message."""
        return not self.synthetic and self.role != "system"

    @property
    def starts_turn(self) -> bool:
        """A user message of the root that no compaction wrote."""
        return self.role == "user" and self.branch is None and not self.synthetic


def project(rows: Iterable[StoredRow]) -> list[str]:
    """The ids of the view: what the newest boundary names, then each message behind it that it does not."""
    boundary: list[str] = []
    behind: list[str] = []
    for row in rows:
        if row.kind == "Compacted":
            boundary = [*row.ids("pinned"), *row.ids("summary"), *row.ids("preserved")]
            behind = []
        elif row.kind == "MessageAppended":
            behind.append(row.get("event_id"))
    named = set(boundary)
    return [*boundary, *(one for one in behind if one not in named)]


def project_prefix(rows: Sequence[StoredRow]) -> list[str]:
    """The same of a log that may end within a write: a summary that is still to come is not in the view."""
    held = {row.get("event_id") for row in rows}
    return [one for one in project(rows) if one in held]


def session_id_of(rows: Sequence[StoredRow]) -> str | None:
    """The id that the session was opened with, None when it was erased."""
    opened: str | None = rows[0].get("session_id")
    return opened


def is_deleted(rows: Sequence[StoredRow]) -> bool:
    """Whether the newest event is a tombstone."""
    return rows[-1].kind == "SessionDeleted"


def alive(database: Database) -> dict[str, Sequence[StoredRow]]:
    """By session id the streams of sessions that were not deleted."""
    return {str(session_id_of(rows)): rows for rows in database.streams.values() if not is_deleted(rows)}


def metadata_of(rows: Sequence[StoredRow]) -> Mapping[str, Any]:
    """The metadata that are in force."""
    text = _metadata_text(rows)
    return json.loads(text) if text else {}


def owner_of(rows: Sequence[StoredRow]) -> object:
    """The principal that the session belongs to."""
    return metadata_of(rows).get("user.name")


def text_of(row: StoredRow) -> str | None:
    """What a message says; None without a text, or when it was redacted."""
    if row.get("commitment") is not None:
        return None
    parts = json.loads(row.get("content") or "{}").get("parts", ())
    texts: list[str] = [part["content"] for part in parts if part["type"] == "text"]
    return "\n".join(texts) if texts else None


def check(database: Database, *, is_swept: bool = False) -> list[str]:
    """What breaks a law at this moment; `is_swept` asks that every deletion is completed."""
    found: list[str] = []
    for stream, rows in database.streams.items():
        name = session_id_of(rows) or str(stream)
        found += (f"{name}: {problem}" for problem in _stream_problems(rows, database, is_swept))
    found += _ledger_problems(database)
    found += _directory_problems(database)
    found += _index_problems(database)
    return found


def check_growth(earlier: Database, later: Database) -> Iterator[str]:
    """Law 1: what was there is there, field by field, but for what was redacted or deleted since."""
    for stream, before in earlier.streams.items():
        now = later.streams.get(stream)
        name = session_id_of(before) or str(stream)
        if now is None:
            yield f"{name}: law 1: the stream is gone"
            continue
        if is_deleted(now):
            if now[-1].version < before[-1].version:
                yield f"{name}: law 1: the tombstone is in front of what was there"
            if is_deleted(before) and now[-1] != before[-1]:
                yield f"{name}: law 1: the tombstone changed"
            continue
        redacted = {row.get("redacted_version") for row in now if row.kind == "ContentRedacted"}
        by_version = {row.version: row for row in now}
        for row in before:
            other = by_version.get(row.version)
            if other != row and not (
                other is not None and row.version in redacted and _is_redacted_form(row, other)
            ):
                yield f"{name}: law 1: version {row.version} is not what it was"


# --- one stream


def _stream_problems(rows: Sequence[StoredRow], database: Database, is_swept: bool) -> Iterator[str]:
    yield from _order_problems(rows, database)
    if is_deleted(rows):
        yield from _tombstone_problems(rows, database, is_swept)
        if any(row.kind == "EventErased" for row in rows):
            return
    elif any(row.kind in ("EventErased", "SessionDeleted") for row in rows):
        yield "something follows on an erased event or a tombstone"
        return
    if rows[0].kind != "SessionOpened":
        yield "the first event does not open it"
        return
    yield from _chain_problems(rows)
    yield from _id_problems(rows)
    yield from _redaction_problems(rows, database)
    try:
        yield from _Fold().problems(rows)
    except (KeyError, ValueError, IndexError) as error:
        yield f"law 2: it cannot be folded ({type(error).__name__}: {error})"


def _order_problems(rows: Sequence[StoredRow], database: Database) -> Iterator[str]:
    versions = [row.version for row in rows]
    row = database.directory.get(rows[0].stream)
    if row is not None and row.is_purged:
        if versions != [0, rows[-1].version] or not is_deleted(rows):
            yield f"a purged session keeps its first event and its tombstone, not {versions}"
    elif versions != list(range(len(rows))):
        yield f"law 6: its versions are {versions[:3]} … {versions[-3:]} in {len(rows)} rows"
    if any(later.time < earlier.time for earlier, later in pairwise(rows)):
        yield "law 6: a recorded time goes backwards"
    if any(later.place <= earlier.place for earlier, later in pairwise(rows)):
        yield "law 6: the order of notifications is not that of versions"


def _tombstone_problems(rows: Sequence[StoredRow], database: Database, is_swept: bool) -> Iterator[str]:
    tombstone = rows[-1]
    kinds = {row.kind for row in rows[:-1]}
    if "EventErased" in kinds:
        if kinds != {"EventErased"}:
            yield f"the deletion erased only a part: {sorted(kinds)} are left"
        if any(set(row.fields) - {"chain"} or row.fields.get("chain") for row in rows[:-1]):
            yield "an erased event says something"
        if chained(tombstone, tombstone.get("previous")) != tombstone.get("chain"):
            yield "the chain value of the tombstone is another"
    elif tombstone.get("keeps_content") is None and (is_swept or database.has_session_rows):
        yield "it was deleted and its events were not erased"


def chained(row: StoredRow, previous: str) -> str:
    """The chain value that the event must have behind `previous`, by the description of the format."""
    lines = [
        "turnlog/1",
        previous,
        row.stream.hex,
        str(row.version),
        row.topic,
        row.time.isoformat(),
    ]
    for name, value in sorted(row.fields.items()):
        if name not in _NOT_IN_CHAIN and value is not None:
            text = json.dumps(value, separators=(",", ":")) if isinstance(value, list) else str(value)
            lines.append(f"{name}={len(text)}:{text}")
    content, salt = row.get("content"), row.get("salt")
    committed = row.get("commitment") or ""
    if salt is not None:
        committed = sha256(f"{salt}\n{content}".encode()).hexdigest()
    lines.append(committed)
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _chain_problems(rows: Sequence[StoredRow]) -> Iterator[str]:
    previous = "0" * 64
    for row in rows:
        expected = chained(row, previous)
        if row.get("chain") != expected:
            yield f"the chain is broken at version {row.version}"
        previous = row.get("chain") or ""
        if row.get("content") is not None and (row.get("salt") is None) == (row.get("commitment") is None):
            yield f"version {row.version} has both or none of salt and commitment"


def _id_problems(rows: Sequence[StoredRow]) -> Iterator[str]:
    ids = [row.get("event_id") for row in rows if row.kind in _ENTRIES]
    if None in ids:
        yield "law 8: an entry has no id"
    double = {one for one in ids if ids.count(one) > 1} if len(set(ids)) < len(ids) else set[Any]()
    if double:
        yield f"law 8: there twice: {sorted(map(str, double))}"


def _redaction_problems(rows: Sequence[StoredRow], database: Database) -> Iterator[str]:
    redacted: dict[int, StoredRow] = {
        row.get("redacted_version"): row for row in rows if row.kind == "ContentRedacted"
    }
    for row in rows:
        if row.get("commitment") is not None and row.version not in redacted:
            yield f"law 1: version {row.version} lost its content without a redaction"
    for version, redaction in redacted.items():
        target = rows[version]
        if target.get("commitment") is None and database.has_session_rows:
            yield f"version {version} was redacted and has its content"
        if target.get("commitment") not in (None, redaction.get("commitment_kept")):
            yield f"version {version} was redacted and has another commitment"


def _is_redacted_form(before: StoredRow, now: StoredRow) -> bool:
    hidden = {"content", "salt", "commitment"}
    kept = {name: value for name, value in before.fields.items() if name not in hidden}
    left = {name: value for name, value in now.fields.items() if name not in hidden}
    same = (before.version, before.topic, before.place, before.time) == (
        now.version,
        now.topic,
        now.place,
        now.time,
    )
    return same and kept == left and now.get("salt") is None and now.get("commitment") is not None


class _Fold:
    """Walks through a stream, and holds each event against what was in front of it."""

    def __init__(self) -> None:
        self._view: list[Said] = []
        self._all: dict[str, Said] = {}
        self._open: set[str] = set()
        self._expires: datetime | None = None
        self._idle: int | None = None
        self._boundary: int | None = None
        self._opened = _EPOCH
        self._carriers: set[int] = set()
        self._message_at: set[int] = set()

    def problems(self, rows: Sequence[StoredRow]) -> Iterator[str]:
        """What is wrong with any of them."""
        promised: list[str] = []
        written_at: datetime | None = None
        for row in rows:
            said = _said(row) if row.kind == "MessageAppended" else None
            if promised:
                expected = promised.pop(0)
                if said is None or said.id != expected or not said.synthetic or row.time != written_at:
                    yield f"law 3: version {row.version} is not the summary {expected} of its boundary"
                    promised = []
            if row.kind == "Compacted":
                yield from self._boundary_problems(row, rows)
                promised, written_at = list(row.ids("summary")), row.time
            self._move(row, said)
            yield from self._state_problems(row)
        if promised:
            yield f"law 3: the summary {promised} of the newest boundary is missing"
        if not is_deleted(rows) and project(rows) != [one.id for one in self._view]:
            yield "law 2: the fold and the projection differ"

    def _move(self, row: StoredRow, said: Said | None) -> None:
        if row.kind == "SessionOpened":
            self._opened = row.time
            self._expires, self._idle = _time(row.get("expires_at")), row.get("idle")
        elif row.kind == "ExpiryMoved":
            self._expires = _time(row.get("expires_at"))
        elif row.kind == "CallAbandoned":
            self._open.discard(f"{row.get('call_version')}:{row.get('call_id')}")
        elif row.kind == "SessionDeleted":
            self._view, self._open = [], set()
        elif row.kind == "Compacted":
            named = project([row])
            summary = set(row.ids("summary"))
            self._boundary = row.version
            by_id = {**self._all, **{one: Said(one, -1, "", None, True, (), ()) for one in summary}}
            self._view = [by_id[one] for one in named]
        elif said is not None:
            self._all[said.id] = said
            self._message_at.add(said.version)
            places = [place for place, one in enumerate(self._view) if one.id == said.id]
            if places:
                self._view[places[0]] = said
            else:
                self._view.append(said)
            self._open.difference_update(row.get("closes") or ())
            self._open.update(f"{row.version}:{call}" for call in row.get("opens") or ())
            if self._idle is not None and not said.synthetic and said.role in ("user", "assistant"):
                self._expires = row.time + timedelta(microseconds=self._idle)

    def _boundary_problems(self, row: StoredRow, rows: Sequence[StoredRow]) -> Iterator[str]:
        where = f"the boundary at version {row.version}"
        pinned, summary, preserved = (row.ids(name) for name in ("pinned", "summary", "preserved"))
        named = [*pinned, *summary, *preserved]
        if len(set(named)) < len(named):
            yield f"law 4: {where} names a message twice"
        written = {
            event.get("event_id")
            for event in rows[row.version + 1 : row.version + 1 + len(summary)]
            if event.kind == "MessageAppended"
        }
        if set(summary) - written:
            yield f"law 3: {where} has a summary that was not written with it"
        before = {one.id for one in self._view}
        strange = [one for one in (*pinned, *preserved) if one not in before]
        if strange:
            yield f"law 3: {where} names {strange}, which the view in front of it does not hold"
        covered = [one for one in self._view if one.id not in named]
        if not covered:
            yield f"law 5: {where} covers nothing"
        if row.get("covered_count") != len(covered):
            yield f"law 3: {where} covers {len(covered)}, not the {row.get('covered_count')} that it says"
        yield from (f"law 4: {where} {problem}" for problem in self._cut_problems(row, covered, preserved))

    def _cut_problems(
        self, row: StoredRow, covered: Sequence[Said], preserved: Sequence[str]
    ) -> Iterator[str]:
        gone = {one.id for one in covered}
        parted = [pair for pair in _pairs(self._view) if (pair[0] in gone) != (pair[1] in gone)]
        if parted:
            yield f"parts calls from their results: {parted}"
        if {f"{one.version}:{call}" for one in covered for call in one.calls} & self._open:
            yield "covers a call that awaits its result"
        branch = row.get("branch")
        if branch is not None:
            if {one.branch for one in covered} != {branch}:
                yield "covers what is not of its branch"
            return
        conversation = [one for one in self._view if one.is_conversation]
        starts = [place for place, one in enumerate(conversation) if one.starts_turn]
        answers = {answer for _, answer in _pairs(self._view)}
        newest = [one.id for one in conversation[starts[-1] :] if one.id not in answers] if starts else []
        if gone & set(newest):
            yield "covers something of the newest turn"
        kept = [
            one
            for one in conversation
            if one.id in preserved and one.branch is None and one.id not in answers
        ]
        if kept and not kept[0].starts_turn:
            yield f"keeps a conversation that begins with {kept[0].id}, which starts no turn"

    def _state_problems(self, row: StoredRow) -> Iterator[str]:
        """The state that the event carries, against the fold."""
        text, anchor = row.get("state"), row.get("anchor")
        if (text is None) == (anchor is None):
            yield f"version {row.version} carries a state and names an anchor, or neither"
            return
        if text is None:
            if anchor not in self._carriers:
                yield f"version {row.version} names {anchor} as its anchor, which carries no state"
            return
        self._carriers.add(row.version)
        ranges, created, expires, _, _, *rest = text.split(";")
        if int(created) != _micros(self._opened):
            yield f"version {row.version} carries another time of creation"
        expected = (
            "" if self._expires is None else str((self._expires - self._opened) // timedelta(microseconds=1))
        )
        if expires != expected:
            yield f"version {row.version} carries another expiry"
        boundary = next((part for part in rest if part.startswith("b")), None)
        if boundary != (None if self._boundary is None else f"b{self._boundary}"):
            yield f"version {row.version} carries another boundary"
        held = [
            version for version in _versions(ranges) if version <= row.version and version in self._message_at
        ]
        mine = [one.version for one in self._view if one.version >= 0]
        if held != mine:
            yield f"law 2: version {row.version} carries another view than the log has"


def _said(row: StoredRow) -> Said:
    content: dict[str, Any] = json.loads(row.get("content"))
    parts: list[dict[str, Any]] = content.get("parts") or content.get("form") or []
    return Said(
        row.get("event_id"),
        row.version,
        row.get("role"),
        row.get("branch"),
        bool(row.get("synthetic")),
        tuple(str(part.get("id")) for part in parts if part["type"] == "tool_call"),
        tuple(str(part.get("id")) for part in parts if part["type"] == "tool_call_response"),
    )


def _pairs(view: Sequence[Said]) -> list[tuple[str, str]]:
    """The message of each call and that of its result, where both are in this view."""
    asked: dict[tuple[str | None, str], str] = {}
    found: list[tuple[str, str]] = []
    for one in view:
        for call in one.results:
            if (one.branch, call) in asked:
                found.append((asked[one.branch, call], one.id))
        for call in one.calls:
            asked[one.branch, call] = one.id
    return found


def _versions(ranges: str) -> Iterator[int]:
    for item in ranges.removesuffix("!").split(","):
        if item:
            first, _, last = item.partition("-")
            yield from range(int(first), int(last or first) + 1)


# --- rows about the log


def _ledger_problems(database: Database) -> Iterator[str]:
    """Each id that does not say its version has one entry with it, and there is no other."""
    expected: dict[tuple[UUID, str], int] = {}
    for stream, rows in database.streams.items():
        for row in () if is_deleted(rows) else rows:
            name = row.get("event_id") if row.kind in _ENTRIES else None
            if name is not None and not (_OWN_ID.fullmatch(name) and name.startswith(f"{row.version}-")):
                expected[stream, name] = row.version
    if database.has_session_rows:
        if expected != database.ledger:
            yield f"the ledger differs from the log: {_difference(expected, database.ledger)}"
        return
    entries = {uuid5(stream, name): version for (stream, name), version in expected.items()}
    missing = {one: entries[one] for one in entries if database.entries.get(one) != entries[one]}
    if missing:
        yield f"{len(missing)} events have no entry in the ledger"
    if len(database.entries) > len(entries) and not any(map(is_deleted, database.streams.values())):
        yield "the ledger has entries of events that are not there"


def _directory_problems(database: Database) -> Iterator[str]:
    """Each row says what the log says, as far as the rows got."""
    told: dict[UUID, list[StoredRow]] = {}
    for stream, rows in database.streams.items():
        seen = [row for row in rows if database.tracked is None or row.place <= database.tracked]
        if seen:
            told[stream] = seen
    for stream, rows in told.items():
        row = database.directory.get(stream)
        if row is not None:
            yield from (f"{stream}: the directory: {one}" for one in _row_problems(row, rows))
        elif rows[0].kind == "SessionOpened" or database.has_session_rows:
            yield f"{stream}: the directory has no row of it"
    for stream in database.directory.keys() - told.keys():
        yield f"{stream}: the directory has a row of what is not in the log"


def _row_problems(row: DirectoryRow, rows: Sequence[StoredRow]) -> Iterator[str]:
    newest = rows[-1]
    if row.version != newest.version:
        yield f"it is at version {row.version}, the log at {newest.version}"
        return
    if row.head != newest.get("chain"):
        yield "another head"
    if row.is_deleted != is_deleted(rows):
        yield "deleted or not"
    if row.is_deleted:
        if row.session_id or row.metadata:
            yield "it says something of a deleted session"
        return
    if row.session_id != session_id_of(rows):
        yield "another session id"
    if row.messages != sum(one.kind == "MessageAppended" for one in rows):
        yield f"it counts {row.messages} messages"
    if row.metadata != _metadata_text(rows):
        yield "other metadata"
    if row.expires_at != _expiry(rows):
        yield "another expiry"


def _metadata_text(rows: Sequence[StoredRow]) -> str | None:
    texts: list[str | None] = [
        row.get("content") for row in rows if row.kind in ("SessionOpened", "MetadataUpdated")
    ]
    return texts[-1]


def _expiry(rows: Sequence[StoredRow]) -> int | None:
    expires, idle = _time(rows[0].get("expires_at")), rows[0].get("idle")
    for row in rows:
        if row.kind == "ExpiryMoved":
            expires = _time(row.get("expires_at"))
        elif (
            row.kind == "MessageAppended"
            and idle is not None
            and not row.get("synthetic")
            and row.get("role") in ("user", "assistant")
        ):
            expires = row.time + timedelta(microseconds=idle)
    return None if expires is None else _micros(expires)


def _index_problems(database: Database) -> Iterator[str]:
    """The index holds the trigrams of the messages that it says it holds, and nothing of others."""
    streams = {
        row.position: database.streams[stream]
        for stream, row in database.directory.items()
        if stream in database.streams
    }
    yield from _full_text_problems(database, streams)
    for position, spans in database.blocks.items():
        rows = streams.get(position)
        if rows is None or is_deleted(rows):
            yield f"the index has blocks of a session that is not there: {position}"
            continue
        indexed = database.block_marks.get(position, 0)
        inside = sorted(spans)
        if any(later[0] <= earlier[1] for earlier, later in pairwise(inside)):
            yield f"{session_id_of(rows)}: blocks of the index overlap"
        for row in rows:
            missing = not any(first <= row.version <= last for first, last in inside)
            text = text_of(row) if row.kind == "MessageAppended" else None
            if text is not None and len(text) > 2 and row.version <= indexed and missing:
                yield f"{session_id_of(rows)}: version {row.version} is in no block of the index"
        if inside and inside[-1][1] > indexed:
            yield f"{session_id_of(rows)}: a block lies behind the mark of the index"


def _full_text_problems(database: Database, streams: Mapping[int, Sequence[StoredRow]]) -> Iterator[str]:
    mark = database.index_mark or 0
    newest = max((row.place for rows in database.streams.values() for row in rows), default=0)
    if database.has_session_rows and newest - mark > _MAX_LAG + 1 and database.index_mark is not None:
        yield f"{newest - mark} events are not indexed"
    if database.index_mark is None:
        return
    for position, rows in streams.items():
        held = database.indexed.get(position, {})
        if is_deleted(rows):
            continue  # what it held goes with the deletion, or with the sweep that completes it
        for row in rows:
            text = text_of(row) if row.kind == "MessageAppended" else None
            terms = held.get(row.version)
            if terms is not None and text is None and not _is_due(row, rows):
                yield f"{session_id_of(rows)}: version {row.version} is in the index and says nothing"
            if terms is not None and row.place > mark:
                yield f"{session_id_of(rows)}: version {row.version} is in the index, behind its mark"
            if text is not None and text.isascii() and len(text) > 2 and row.place <= mark:
                expected = frozenset(text.lower()[at : at + 3] for at in range(len(text) - 2))
                if terms != expected:
                    yield f"{session_id_of(rows)}: version {row.version} has other trigrams in the index"


def left_of_deleted(database: Database) -> list[int]:
    """The positions of deleted sessions of which the full-text index still holds something."""
    return [
        row.position
        for row in database.directory.values()
        if row.is_deleted and database.indexed.get(row.position)
    ]


def _is_due(row: StoredRow, rows: Sequence[StoredRow]) -> bool:
    return any(one.kind == "ContentRedacted" and one.get("redacted_version") == row.version for one in rows)


# --- what writers were told


@dataclass(frozen=True)
class Promise:
    """What one call was to write, and what became of it as far as the writer was told.

    `count` is how many events it writes when it writes anything, 0 when that is not known. `wrote` are the
    ids and versions that were acknowledged; None when no answer came. `why` names the error instead.
    """

    call: str
    kind: str
    session: str
    count: int = 0
    wrote: Sequence[tuple[str, int]] | None = None
    why: str | None = None
    uncertain: bool = False


def read_journal(lines: Iterable[str]) -> dict[str, Promise]:
    """The promises of a journal, by call; a line that was cut off is none."""
    promises: dict[str, Promise] = {}
    for line in lines:
        if not line.endswith("\n"):
            continue
        told = json.loads(line)
        if "kind" in told:
            promises[told["call"]] = Promise(told["call"], told["kind"], told["session"], told["count"])
            continue
        begun = promises[told["call"]]
        wrote = told.get("wrote")
        promises[begun.call] = Promise(
            begun.call,
            begun.kind,
            begun.session,
            begun.count,
            None if wrote is None else [(name, version) for name, version in wrote],
            told.get("why"),
            bool(told.get("uncertain")),
        )
    return promises


def unanswered_calls(promises: Mapping[str, Promise]) -> set[str]:
    """The calls of which nobody was told what became of them."""
    return {
        promise.call
        for promise in promises.values()
        if promise.kind != "sweep" and promise.wrote is None and promise.why is None
    }


def calls_stored(database: Database) -> set[str]:
    """The calls that wrote something that is there."""
    return {_call_of(row) for rows in database.streams.values() for row in rows}


def check_journal(database: Database, promises: Mapping[str, Promise]) -> Iterator[str]:
    """Every acknowledged event is there exactly once, and of every call all or nothing."""
    sessions = alive(database)
    by_call: dict[str, list[StoredRow]] = {}
    for rows in sessions.values():
        for row in rows:
            by_call.setdefault(_call_of(row), []).append(row)
    for call in by_call.keys() - promises.keys():
        yield f"nobody made the call {call!r} that wrote {[row.version for row in by_call[call]]}"
    ended = _ended_by(promises)
    opened = {promise.session for promise in promises.values() if promise.kind == "create" and promise.wrote}
    for name in opened - sessions.keys() - ended:
        yield f"{name}: it was created, nobody deleted it, and it is not there"
    for promise in promises.values():
        rows = by_call.get(promise.call, [])
        if promise.session in sessions or rows:
            yield from (f"{promise.call}: {one}" for one in _promise_problems(promise, rows))
        if promise.kind == "delete" and promise.wrote is not None and promise.session in sessions:
            yield f"{promise.call}: the session was deleted and is there"


def _promise_problems(promise: Promise, rows: Sequence[StoredRow]) -> Iterator[str]:
    entries = [(row.get("event_id"), row.version) for row in rows if row.kind in _ENTRIES]
    if promise.wrote is not None and promise.kind != "delete":
        expected = [(name, version) for name, version in promise.wrote if name]
        if sorted(entries, key=_by_version) != sorted(expected, key=_by_version):
            yield f"{promise.kind} was told {expected}, and {entries} are stored"
        others = [version for name, version in promise.wrote if not name]
        if set(others) - {row.version for row in rows}:
            yield f"{promise.kind} was told version {others}, which it did not write"
    elif promise.why is not None and not promise.uncertain and rows:
        yield f"{promise.kind} was refused with {promise.why} and wrote {entries}"
    if not rows:
        return
    versions = [row.version for row in rows]
    if versions != list(range(versions[0], versions[0] + len(rows))) or len({row.time for row in rows}) > 1:
        yield f"{promise.kind} wrote {versions}, which is not one write"
    if promise.count and promise.wrote is None and len(rows) != promise.count:
        yield f"{promise.kind} wrote {len(rows)} of {promise.count} events"


def _ended_by(promises: Mapping[str, Promise]) -> set[str]:
    """Sessions that somebody may have deleted, whatever became of that call."""
    return {promise.session for promise in promises.values() if promise.kind in ("delete", "short")}


def _call_of(row: StoredRow) -> str:
    context = row.get("context")
    return str(json.loads(context).get("correlation_id")) if context else f"version {row.version}"


def _by_version(entry: tuple[Any, int]) -> int:
    return entry[1]


def _difference(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> str:
    missing = sorted(map(str, one.keys() - other.keys()))[:3]
    strange = sorted(map(str, other.keys() - one.keys()))[:3]
    return f"missing {missing}, too many {strange}"


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
