"""Claude Code's JSONL: one record a line, linked by `uuid` and `parentUuid`, of one or several sessions.

- Records of one `message.id` are one assistant message; results of its calls are one tool message right
  behind it. What a client keeps of a result for itself (`toolUseResult`) is an event behind that message.
- Of a fork the chain that ends in the newest message is taken; of the others only what belongs to it: calls
  that run in parallel fork the links, too. A record without a parent in the file begins anew.
- `isSidechain` records are on a branch: their `agentId`, or `sidechain-1`, `sidechain-2` …
- An `isMeta` record was told to the model as a user's words, but starts no turn: it joins the user or tool
  message in front of it, else the user message behind it; between two answers it is an event.
- Every other record, and every one without anything said, is an event `CLAUDE_CODE.<TYPE>` with the record.
- Ids of events come from the `uuid` of a record, or from the content of one that has none. So those of a file
  that has grown are the ones that it had before, and a message that has grown is known again.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import InvalidIdError, InvalidMessageError
from turnlog.domain.ids import check_branch, check_id
from turnlog.domain.json_text import to_json_text
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.formats import anthropic_messages
from turnlog.infrastructure.formats.imported import (
    ImportedEvent,
    ImportedSession,
    ImportReport,
    SessionIds,
    UnreadableFileError,
)
from turnlog.infrastructure.formats.json_source import JsonSource, Record, fields, items, text

NAME = "claude_code"

_TYPES = frozenset(
    ("user", "assistant", "system", "summary", "file-history-snapshot", "queue-operation", "progress")
)
_MARKS = frozenset(("uuid", "sessionId", "leafUuid", "messageId", "message"))
_ABOUT_SESSION = ("cwd", "gitBranch", "version")
_MAX_UUID = 120
"""Characters; room is left for what marks the kind of an event."""
_NO_TIME = datetime.min.replace(tzinfo=UTC)

Block: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[int, int]


def recognises(value: object) -> bool:
    """Whether the record is one of Claude Code."""
    record = fields(value)
    return text(record, "type") in _TYPES and not _MARKS.isdisjoint(record)


def sessions(
    source: JsonSource, records: Iterable[Record], ids: SessionIds, report: ImportReport
) -> Iterator[ImportedSession]:
    """The sessions of the file, in the order in which they begin."""
    found = [_Entry(record, position) for position, record in enumerate(records)]
    if not any(entry.is_message for entry in found):
        raise UnreadableFileError(source.path, None, "no record of it holds a message")
    for own_id, entries in _by_session(found).items():
        session_id, _ = ids.session(own_id)
        placed = _Session(source, entries, report).placed()
        taken: set[str] = set()
        events = tuple(
            ImportedEvent(_with_own_id(event, taken), may_grow=event.message is not None)
            for _, event in placed
        )
        yield ImportedSession(session_id, NAME, _metadata(entries), events)


class _Entry:
    """A record with its place in the file and in the tree of records."""

    def __init__(self, record: Record, position: int) -> None:
        self.line = record.line
        self.position = position
        self.raw = fields(record.value) or {"value": record.value}
        self.parent: _Entry | None = None
        self.root: _Entry = self
        self.place: Place = (position, 0)
        self.message = fields(self.raw.get("message"))
        self.blocks = _blocks(self.message.get("content"))
        self.occurred_at = _time(text(self.raw, "timestamp"))

    @property
    def type(self) -> str:
        return text(self.raw, "type") or "other"

    @property
    def is_message(self) -> bool:
        """Whether something was said here."""
        return self.type in ("user", "assistant") and bool(self.blocks)

    @property
    def is_side(self) -> bool:
        return bool(self.raw.get("isSidechain"))

    @property
    def message_id(self) -> str | None:
        return text(self.message, "id") if self.type == "assistant" else None

    @property
    def results(self) -> list[Block]:
        return [block for block in self.blocks if _is_result(block)] if self.type == "user" else []

    @property
    def said(self) -> list[Block]:
        return [block for block in self.blocks if not _is_result(block)]

    @property
    def call_ids(self) -> list[str]:
        calls = (text(block, "id") for block in self.blocks if block.get("type") == "tool_use")
        return [call for call in calls if call]

    @property
    def id(self) -> str:
        """The record's `uuid`, or a hash of the content of a record that has none that can be used."""
        try:
            uuid = check_id("Event id", self.raw.get("uuid"))
        except InvalidIdError:
            uuid = ""
        if 0 < len(uuid) <= _MAX_UUID:
            return uuid
        return hashlib.sha256(to_json_text(self.raw).encode()).hexdigest()[:32]

    @property
    def about(self) -> dict[str, Any]:
        """What the record says besides its message."""
        return {key: value for key, value in self.raw.items() if key not in ("message", "toolUseResult")}


@dataclass(slots=True)
class _Group:
    """Records that are one message."""

    role: str
    entries: list[_Entry]
    blocks: list[Block]
    meta: list[Block] = field(default_factory=list[Block])
    results: _Group | None = None

    @property
    def id(self) -> str:
        """The id of the first record that the message cannot be without."""
        if self.role == "tool":
            return f"{self.entries[0].id}-results"
        return next((one for one in self.entries if not one.raw.get("isMeta")), self.entries[0]).id

    def message(self) -> Message:
        first, last = self.entries[0].message, self.entries[-1].message
        if self.role == "tool":
            message, *more = anthropic_messages.messages({"role": "user", "content": self.blocks})
            if more or message.role is not Role.TOOL:
                raise InvalidMessageError("A `tool_result` names its call by `tool_use_id`.")
            if self.meta:
                (meta,) = anthropic_messages.messages({"role": "user", "content": self.meta})
                message = message.model_copy(update={"parts": (*message.parts, *meta.parts)})
        else:
            is_text = len(self.entries) == 1 and isinstance(first.get("content"), str)
            content = first["content"] if is_text else self.blocks
            message = anthropic_messages.message({**first, **last, "role": self.role, "content": content})
        first_about = self.entries[0].about
        rest = (
            {key: value for key, value in entry.about.items() if first_about.get(key) != value}
            for entry in self.entries[1:]
        )
        metadata = {**(message.metadata or {}), NAME: [first_about, *rest]}
        return message.model_copy(update={"metadata": metadata})


class _Session:
    """The records of one session as events in the order of the log."""

    def __init__(self, source: JsonSource, entries: Sequence[_Entry], report: ImportReport) -> None:
        self._source = source
        self._report = report
        self._entries = _linked(entries)
        report.dropped("records that stand twice", len(entries) - len(self._entries))

    def placed(self) -> list[tuple[Place, NewEvent]]:
        """The events with their places, sorted."""
        placed: list[tuple[Place, NewEvent]] = []
        for branch, entries in self._by_branch().items():
            place = (0, 0)
            groups, left = _grouped(entries)
            for group in groups:
                place = max(place, group.entries[0].place)
                placed += ((place, event) for event in self._message_events(group, branch))
            self._report.kept("isMeta records between two answers, as events", len(left))
            placed += ((entry.place, _record_event(entry, "meta", "-meta")) for entry in left)
        for entry in self._entries:
            if not entry.is_message:
                placed.append((entry.place, _record_event(entry, entry.type)))
                self._report.kept(f"{entry.type} records, as events")
        return sorted(placed, key=lambda item: item[0])

    def _by_branch(self) -> dict[str | None, list[_Entry]]:
        """The messages that are taken, by branch, in order."""
        trees: dict[int, list[_Entry]] = defaultdict(list)
        for entry in self._entries:
            if entry.is_message:
                trees[entry.root.position].append(entry)
        branches: dict[str | None, list[_Entry]] = defaultdict(list)
        sides = 0
        for tree in trees.values():
            taken = _newest_chain(tree)
            self._report.dropped("records of forks that were given up", len(tree) - len(taken))
            sides += tree[0].is_side
            branches[_branch(tree[0], sides)] += taken
        return {branch: sorted(taken, key=lambda e: e.place) for branch, taken in branches.items()}

    def _message_events(self, group: _Group, branch: str | None) -> Iterator[NewEvent]:
        first = group.entries[0]
        with self._source.at(first.line):
            message = group.message()
        self._report.mapped("messages on branches" if branch else "messages")
        self._report.mapped("records that joined a message", len(group.entries) - 1)
        yield NewEvent(message=message, id=group.id, branch=branch, occurred_at=first.occurred_at)
        for entry in group.entries:
            if "toolUseResult" in entry.raw and (group.role == "tool" or not entry.results):
                payload = {name: entry.raw.get(name) for name in ("uuid", "toolUseResult")}
                self._report.kept("toolUseResult of records, as events")
                yield _event("TOOL_USE_RESULT", payload, entry, "-tool-use-result")


def _by_session(entries: Sequence[_Entry]) -> dict[str | None, list[_Entry]]:
    """The records by `sessionId`; one without goes with the record that it names, else the one before."""
    owners = {text(entry.raw, "uuid"): text(entry.raw, "sessionId") for entry in entries}
    owners[None] = None
    current = next(filter(None, (text(entry.raw, "sessionId") for entry in entries)), None)
    found: dict[str | None, list[_Entry]] = defaultdict(list)
    for entry in entries:
        named = text(entry.raw, "leafUuid") or text(entry.raw, "messageId")
        current = text(entry.raw, "sessionId") or owners.get(named) or current
        found[current].append(entry)
    return found


def _linked(entries: Sequence[_Entry]) -> list[_Entry]:
    """The records without repetitions, each with its parent, its root, and a place behind its parent's."""
    by_uuid: dict[str, _Entry] = {}
    kept: list[_Entry] = []
    for entry in entries:
        uuid = text(entry.raw, "uuid")
        known = by_uuid.setdefault(uuid, entry) if uuid else entry
        if known is entry or known.raw != entry.raw:
            kept.append(entry)
    for entry in kept:
        parent = text(entry.raw, "parentUuid") or text(entry.raw, "logicalParentUuid")
        entry.parent = by_uuid.get(parent) if parent else None
    done: set[int] = set()
    for entry in kept:
        path: list[_Entry] = []
        on_path: set[int] = set()
        at: _Entry | None = entry
        while at and at.position not in done:
            if at.position in on_path:
                path[-1].parent = None
                break
            path.append(at)
            on_path.add(at.position)
            at = at.parent
        for one in reversed(path):
            done.add(one.position)
            if one.parent:
                one.place = max(one.place, (one.parent.place[0], one.parent.place[1] + 1))
                one.root = one.parent.root if one.parent.is_side == one.is_side else one
    return kept


def _newest_chain(tree: Sequence[_Entry]) -> list[_Entry]:
    """The chain that ends in the newest message, with parallel calls of its messages and their results."""
    inner: set[int] = set()
    for entry in tree:
        for one in _chain(entry.parent):
            if one.position in inner:
                break
            inner.add(one.position)
    leaves = (entry for entry in tree if entry.position not in inner)
    newest = max(leaves, key=lambda entry: (entry.occurred_at or _NO_TIME, entry.position))
    chain = {one.position for one in _chain(newest)}
    message_ids = {entry.message_id for entry in tree if entry.position in chain} - {None}
    chain |= {entry.position for entry in tree if entry.message_id in message_ids}
    taken = [entry for entry in tree if entry.position in chain]
    calls = {call for entry in taken for call in entry.call_ids}
    answered = {_call_of(block) for entry in taken for block in entry.results}
    for entry in tree:
        called = {_call_of(block) for block in entry.results}
        if entry.position not in chain and called and not entry.said and called <= calls - answered:
            answered |= called
            taken.append(entry)
    return taken


def _chain(entry: _Entry | None) -> Iterator[_Entry]:
    """The record and those before it, back to where they began."""
    while entry:
        yield entry
        entry = entry.parent


def _grouped(entries: Sequence[_Entry]) -> tuple[list[_Group], list[_Entry]]:
    """The messages of one branch, and the `isMeta` records that no message could take."""
    groups: list[_Group] = []
    answers: dict[str, _Group] = {}
    callers: dict[str, _Group] = {}
    waiting: list[_Entry] = []
    left: list[_Entry] = []
    for entry in entries:
        if entry.type == "assistant":
            group = answers.get(entry.message_id or "")
            if group:
                group.entries.append(entry)
                group.blocks += entry.blocks
            else:
                left += waiting
                waiting = []
                group = _Group("assistant", [entry], list(entry.blocks))
                groups.append(group)
            if entry.message_id:
                answers[entry.message_id] = group
            callers.update((call, group) for call in entry.call_ids)
            continue
        for block in entry.results:
            _answer(groups, callers.get(_call_of(block) or ""), entry, block)
        if not entry.said:
            continue
        if not entry.raw.get("isMeta"):
            blocks = [block for meta in waiting for block in meta.said] + entry.said
            groups.append(_Group("user", [*waiting, entry], blocks))
            waiting = []
        elif groups and groups[-1].role != "assistant":
            _join(groups[-1], entry)
        else:
            waiting.append(entry)
    return groups, left + waiting


def _answer(groups: list[_Group], caller: _Group | None, entry: _Entry, block: Block) -> None:
    """Put a result with the others of its caller's; without a caller, with those in front of it."""
    group = caller.results if caller else (groups[-1] if groups and groups[-1].role == "tool" else None)
    if group is None:
        group = _Group("tool", [], [])
        if caller:
            caller.results = group
            groups.insert(next(i for i, one in enumerate(groups) if one is caller) + 1, group)
        else:
            groups.append(group)
    group.blocks.append(block)
    if entry not in group.entries:
        group.entries.append(entry)


def _join(group: _Group, meta: _Entry) -> None:
    if meta not in group.entries:
        group.entries.append(meta)
    (group.meta if group.role == "tool" else group.blocks).extend(meta.said)


def _branch(entry: _Entry, number: int) -> str | None:
    if not entry.is_side:
        return None
    agent = text(entry.raw, "agentId")
    try:
        return check_branch(agent and agent.replace(".", "_"))
    except InvalidIdError:
        return f"sidechain-{number}"


def _record_event(entry: _Entry, kind: str, mark: str = "") -> NewEvent:
    return _event(re.sub(r"[^A-Z0-9_]+", "_", kind.upper())[:50], entry.raw, entry, mark)


def _event(kind: str, payload: dict[str, Any], entry: _Entry, mark: str) -> NewEvent:
    event_type = EventType.of(f"CLAUDE_CODE.{kind}")
    return NewEvent(type=event_type, payload=payload, id=entry.id + mark, occurred_at=entry.occurred_at)


def _with_own_id(event: NewEvent, taken: set[str]) -> NewEvent:
    """The event, with a number at its id when one before it in the session has the same."""
    wanted = name = event.id or ""
    number = 1
    while name in taken:
        number += 1
        name = f"{wanted}#{number}"
    taken.add(name)
    return event if name == wanted else replace(event, id=name)


def _blocks(content: object) -> list[Block]:
    """The content as blocks, a bare text as a text block; empty when something else is in it."""
    found = [content] if isinstance(content, str) else items(content)
    blocks = [{"type": "text", "text": item} if isinstance(item, str) else fields(item) for item in found]
    return blocks if all(blocks) else []


def _is_result(block: Block) -> bool:
    return block.get("type") == "tool_result"


def _call_of(block: Block) -> str | None:
    return text(block, "tool_use_id")


def _time(value: str | None) -> datetime | None:
    """The instant, None for what is none: a time without an offset says no instant."""
    try:
        time = datetime.fromisoformat(value) if value else None
    except ValueError:
        return None
    return time if time and time.tzinfo else None


def _metadata(entries: Sequence[_Entry]) -> dict[str, Any]:
    """What the records say of the session. A file also holds summaries of sessions that are elsewhere."""
    metadata: dict[str, Any] = {}
    own = {text(entry.raw, "uuid") for entry in entries} - {None}
    for entry in entries:
        for name in _ABOUT_SESSION:
            if value := text(entry.raw, name):
                metadata.setdefault(name, value)
        title = text(entry.raw, "summary")
        if entry.type == "summary" and title and text(entry.raw, "leafUuid") in own:
            metadata[SessionAttributes.TITLE] = title
    return metadata
