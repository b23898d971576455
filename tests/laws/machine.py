"""Random lives of one session, with several services on one store, against a plain model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.laws.oracle import (
    Expected,
    Unit,
    awaiting,
    chain_of,
    cost_of,
    expected_pass,
    pairs,
    sent_cost,
    starts_turn,
    view_ids,
)
from tests.support import strategies as some

from turnlog.application.service import SessionService
from turnlog.domain.compaction import (
    CompactionReason,
    CompactionRequest,
    CompactionResult,
    Summary,
    SummaryRequest,
)
from turnlog.domain.errors import CallNotAwaitedError, VersionConflictError
from turnlog.domain.events import StreamEvent
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import CompactionBoundary, EventType, NewEvent, SessionEvent
from turnlog.domain.messages import Message
from turnlog.domain.session import Session, fold
from turnlog.domain.view import project, replay
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
SESSION = "the session"

services = st.integers(0, 2)

_CALL_AND_RESULT = (
    Message.assistant([{"type": "tool_call", "id": "c1", "name": "f", "awaiting": True}]),
    Message.assistant([{"type": "tool_call", "id": "c2", "name": "f"}]),
    Message.tool("found", id="c1"),
    Message.tool("found", id="c2"),
)


def _units(unit: Unit) -> st.SearchStrategy[Unit]:
    return st.just(unit)


windows: st.SearchStrategy[tuple[Unit, int]] = st.one_of(
    st.tuples(_units("events"), st.integers(1, 5)),
    st.tuples(_units("turns"), st.integers(1, 2)),
    st.tuples(_units("tokens"), st.integers(1, 60)),
)
summarizers = st.sampled_from(
    [
        "none",
        "none",
        "writes",
        "writes",
        "race",
        "race",
        "declines",
        "blank",
        "truncated",
        "raises",
        "not asked",
    ]
)


class CountedCharacters:
    """Costs one, and one for each character of the text."""

    def estimate(self, message: Message) -> int:
        """The cost of the message."""
        return 1 + len(message.text or "")


class ModelDownError(Exception):
    """What a summarizer raises."""


@dataclass
class FakeSummarizer:
    """Does what the test wants of it, and remembers what it was given."""

    kind: str
    race: Callable[[], None]
    given: SummaryRequest | None = None

    def summarize(self, request: SummaryRequest) -> Summary | Sequence[Message]:
        """The answer of this kind of summarizer."""
        self.given = request
        match self.kind:
            case "declines":
                return ()
            case "blank":
                return (Message.user(" "), Message.assistant("\n"))
            case "truncated":
                return Summary(declined=CompactionReason.SUMMARY_TRUNCATED)
            case "raises":
                raise ModelDownError
            case "race":
                self.race()
            case _:
                pass
        return (Message.user("What happened so far?"), Message.assistant("S" * 5))


class SessionLife(RuleBasedStateMachine):
    """The laws as invariants. Subclasses say on what store."""

    def open_services(self) -> list[SessionService]:
        """Three services on one store."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN
        self.services = self.open_services()
        self.log: tuple[SessionEvent, ...] = ()
        self.version = 0
        self.times = [BEGIN]
        self.write_ends: dict[int, int] = {0: 0}
        """Versions that end a write, with the number of log entries up to there."""
        self.metadata: dict[str, Any] = {}
        self.expires_at: datetime | None = None
        self.idle: timedelta | None = None
        self.messages = 0

    def clock(self) -> datetime:
        """The time that all services share."""
        return self.now

    # --- what happens

    @initialize(
        data=st.data(),
        metadata=some.json_objects,
        idle=st.none() | st.just(timedelta(hours=1)),
        turns=st.integers(0, 5),
    )
    def create(
        self, data: st.DataObject, metadata: dict[str, Any], idle: timedelta | None, turns: int
    ) -> None:
        self.services[0].create(SESSION, metadata=metadata, time_to_live=timedelta(days=3), idle=idle)
        self.metadata, self.idle = metadata, idle
        self.expires_at = BEGIN + (idle or timedelta(days=3))
        for branch in (None, "scout"):
            self.take_turns(data, 0, turns, branch)

    @rule(seconds=st.sampled_from([-3600, -1, 1, 60, 86400]))
    def time_passes_or_goes_backwards(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(data=st.data(), by=services)
    def append_one_message(self, data: st.DataObject, by: int) -> None:
        self.append(by, [self.new_message(data)])

    @rule(data=st.data(), by=services, turns=st.integers(1, 4), branch=st.sampled_from(some.BRANCHES))
    def some_turns(self, data: st.DataObject, by: int, turns: int, branch: str | None) -> None:
        self.take_turns(data, by, turns, branch)

    def take_turns(self, data: st.DataObject, by: int, turns: int, branch: str | None) -> None:
        """Questions and answers of the root or of a branch, at times with something in between."""
        between = st.sampled_from([None] * 6 + [Message.system("rules"), *_CALL_AND_RESULT])
        for number in range(turns):
            said = [
                Message.user(f"question {number}"),
                data.draw(between, "between"),
                Message.assistant("ok"),
            ]
            self.append(by, [NewEvent(message=message, branch=branch) for message in said if message])

    @rule(data=st.data(), by=services, size=st.integers(1, 4))
    def append_a_batch(self, data: st.DataObject, by: int, size: int) -> None:
        events = [self.new_event(data) for _ in range(size)]
        if data.draw(st.integers(0, 3), "in-batch duplicate") == 0 and events[0].id is not None:
            events.append(events[0])
        self.append(by, events, expected=self.draw_expected(data), context=data.draw(some.contexts))

    @rule(data=st.data(), by=services)
    def append_custom_events(self, data: st.DataObject, by: int) -> None:
        count = data.draw(st.sampled_from([1, 2, 20]), "custom events")
        kind = data.draw(some.event_types)
        self.append(by, [NewEvent(type=kind, payload={"n": n}) for n in range(count)])

    @rule(data=st.data(), by=services, calls=st.integers(1, 3), awaits=st.booleans())
    def call_tools_in_parallel(self, data: st.DataObject, by: int, calls: int, awaits: bool) -> None:
        ids = data.draw(st.lists(st.sampled_from(some.CALL_IDS), min_size=calls, max_size=calls))
        branch = data.draw(st.sampled_from(some.BRANCHES))
        asked: list[dict[str, Any]] = [
            {"type": "tool_call", "id": name, "name": "f", "awaiting": awaits and place == 0}
            for place, name in enumerate(ids)
        ]
        answered = [{"type": "tool_call_response", "id": name, "response": "ok"} for name in ids]
        batch = [NewEvent(message=Message.assistant(asked), branch=branch)]
        if data.draw(st.booleans(), "answered at once"):
            batch += [NewEvent(message=Message.tool([one]), branch=branch) for one in answered]
        self.append(by, batch)

    @rule(data=st.data(), by=services)
    @precondition(lambda self: self.log)
    def append_a_repeat(self, data: st.DataObject, by: int) -> None:
        held = data.draw(st.sampled_from(self.log), "held")
        if held.message is None and held.type not in ("ACME.AUDIT", "NOTE", "A1_B.C"):
            again = NewEvent(message=Message.user("in place of a boundary"), id=held.id)
        elif data.draw(st.booleans(), "with other content"):
            again = NewEvent(message=Message.user("something else"), id=held.id)
        else:
            again = NewEvent.of(held)
        self.append(by, [again], expected=self.draw_expected(data))

    @rule(by=services, metadata=some.json_objects)
    def update_metadata(self, by: int, metadata: dict[str, Any]) -> None:
        version = self.services[by].update_metadata(SESSION, metadata)
        if repr(sorted(metadata.items())) != repr(sorted(self.metadata.items())):
            self.metadata = metadata
            self.wrote(version, entries=0)
        assert version == self.version

    @rule(by=services, hours=st.none() | st.integers(1, 3))
    def extend(self, by: int, hours: int | None) -> None:
        until = None if hours is None else BEGIN + timedelta(hours=hours)
        version = self.services[by].extend(SESSION, until)
        if until != self.expires_at:
            self.expires_at = until
            self.wrote(version, entries=0)
        assert version == self.version

    @rule(data=st.data(), by=services)
    @precondition(lambda self: any(e.message and e.message.tool_calls for e in self.log))
    def abandon_a_call(self, data: st.DataObject, by: int) -> None:
        asking = [event for event in self.log if event.message and event.message.tool_calls]
        waiting = [event for event in asking if event.id in awaiting(self.log)]
        event = data.draw(st.sampled_from(waiting + asking[-2:]), "asking")
        assert event.message is not None
        call_id = data.draw(st.sampled_from([call.id or "" for call in event.message.tool_calls]), "call")
        try:
            abandoned = self.services[by].abandon(SESSION, event.id, call_id)
        except CallNotAwaitedError:
            return  # that the call is not awaited the invariant on the states says
        assert event.id in awaiting(self.log)
        self.wrote(abandoned.version, entries=1)
        self.read_log((abandoned,))

    @rule(data=st.data(), by=services, window=windows, kind=summarizers)
    def compact(self, data: st.DataObject, by: int, window: tuple[Unit, int], kind: str) -> None:
        self.run_pass(data, by, window, kind, depth=0)

    @rule(
        data=st.data(),
        by=services,
        branch=st.sampled_from(["scout", "scout.reader", "writer"]),
        window=windows,
        is_raced=st.booleans(),
    )
    def compact_a_branch(
        self, data: st.DataObject, by: int, branch: str, window: tuple[Unit, int], is_raced: bool
    ) -> None:
        """A pass of a branch owns its messages: it loses no race against others and leaves them in place."""
        before = self.view_events()
        fake = FakeSummarizer("race", lambda: self.append(0, [self.new_message(data)]) if is_raced else None)
        strategy = WindowCompactionStrategy(_window(*window), fake)
        result = self.services[by].compact(SESSION, None, strategy, branch=branch)
        came = self.view_events()[len(before) :]
        if result.reason is CompactionReason.RACE_LOST:
            assert any(event.branch == branch for event in came), "no message of the branch came"
        if result.is_unchanged:
            assert result.version == self.version or came
            return
        assert all(event.branch == branch for event in result.covered_events)
        others = [event for event in self.view_events() if event.branch != branch]
        self.record(result)
        assert [event for event in self.view_events() if event.branch != branch] == others
        left = {event.id for event in result.covered_events}
        assert not [pair for pair in pairs(before) if (pair[0] in left) != (pair[1] in left)], "law 4: parted"
        assert not left & awaiting(self.log), "law 4: an awaited call keeps its turn"

    # --- how it is done, and what must come of it

    def new_message(self, data: st.DataObject) -> NewEvent:
        message = data.draw(some.conversation_messages(), "message")
        may_be_summary = not message.tool_calls and not message.tool_responses
        return NewEvent(
            message=message,
            id=data.draw(st.none() | st.sampled_from(["g1", "g2", "g3", "g4"]) | self.own_form(), "id"),
            branch=data.draw(st.sampled_from(some.BRANCHES), "branch"),
            synthetic=may_be_summary and data.draw(st.integers(0, 7), "synthetic") == 0,
            occurred_at=data.draw(st.none() | some.times, "occurred at"),
        )

    def new_event(self, data: st.DataObject) -> NewEvent:
        if data.draw(st.integers(0, 3), "custom") > 0:
            return self.new_message(data)
        return NewEvent(
            type=data.draw(some.event_types),
            payload=data.draw(some.json_objects),
            id=data.draw(st.none() | st.sampled_from(["g1", "g5", "g6"]) | self.own_form(), "id"),
        )

    def own_form(self) -> st.SearchStrategy[str]:
        """Ids that look like the service's own, around the versions to come."""
        ahead = st.integers(-2, 4).map(lambda step: max(0, self.version + step))
        return st.builds("{}-{}".format, ahead, st.sampled_from(["0" * 20, "f" * 20]))

    def draw_expected(self, data: st.DataObject) -> int | None:
        return data.draw(
            st.sampled_from([None, None, self.version, self.version - 1, self.version + 1]),
            "expected version",
        )

    def append(
        self,
        by: int,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        context: dict[str, str] | None = None,
    ) -> None:
        held = {event.id: event for event in self.log}
        is_stale = expected not in (None, self.version)
        if is_stale and any(event.id not in held for event in events):
            with pytest.raises(VersionConflictError) as conflict:
                self.services[by].append_events(SESSION, events, expected_version=expected, context=context)
            assert (conflict.value.expected, conflict.value.actual) == (expected, self.version), "law 7"
            return
        stored = self.services[by].append_events(SESSION, events, expected_version=expected, context=context)
        assert len(stored) == len(events)
        new: list[SessionEvent] = []
        for given, answer in zip(events, stored, strict=True):
            first = held.get(given.id or "")
            assert answer.is_repeat == (first is not None), "law 8: the answer says what was a repeat"
            if first is not None:
                assert answer == first, "law 8: a repeat changes nothing"
                assert answer.differs == (_content(given) != _content(first)), "law 8: whether it differs"
                continue
            assert (answer.type, answer.branch, answer.synthetic) == (
                given.type,
                given.branch,
                given.synthetic,
            )
            assert answer.id == given.id or given.id is None
            assert answer.message == given.message
            assert answer.payload == given.payload
            assert answer.occurred_at == given.occurred_at
            assert answer.context == (context or {})
            held[answer.id] = answer
            new.append(answer)
        if new:
            self.wrote(new[-1].version, entries=len(new))
            assert [event.version for event in new] == list(
                range(self.version - len(new) + 1, self.version + 1)
            )
            self.messages += sum(event.message is not None for event in new)
            if self.idle is not None and any(_moves_idle(event) for event in new):
                self.expires_at = new[-1].timestamp + self.idle
        self.read_log(tuple(new))

    def run_pass(self, data: st.DataObject, by: int, window: tuple[Unit, int], kind: str, depth: int) -> None:
        unit, size = window
        view = self.view_events()
        expected = expected_pass(view, unit, size, summarizes=kind != "none", awaited=awaiting(self.log))
        before = self.version
        fake = FakeSummarizer(kind, lambda: self.race(data, depth))
        strategy = WindowCompactionStrategy(_window(unit, size), None if kind == "none" else fake)
        trigger = _never if kind == "not asked" else None
        try:
            result = self.services[by].compact(SESSION, trigger, strategy)
        except ModelDownError:
            assert kind == "raises"
            assert expected.covered
            return
        reason = self.reason_for(expected, kind, view)
        assert result.reason == reason, f"law 5: {result.reason}"
        assert result.tokens_before == sent_cost(view)
        if fake.given:
            assert tuple(event.id for event in fake.given.prior_summary) == expected.prior_summary
            assert tuple(event.id for event in fake.given.preserved) == expected.preserved
            sent = {event.id for event in fake.given.covered}
            assert sent <= set(expected.covered)
        if result.is_unchanged:
            assert kind == "race" or self.version == before
            assert result.version == self.version
            return
        self.check_recorded(result, expected, view)

    def reason_for(self, expected: Expected, kind: str, view: Sequence[SessionEvent]) -> CompactionReason:
        if kind == "not asked":
            return CompactionReason.TRIGGER_DID_NOT_FIRE
        if not expected.covered:
            blocked = expected.held_by_awaited
            return CompactionReason.AWAITED_CALL if blocked else CompactionReason.NOTHING_TO_COVER
        if kind == "race" and self.view_events() != view:
            return CompactionReason.RACE_LOST
        return {
            "declines": CompactionReason.SUMMARIZER_DECLINED,
            "blank": CompactionReason.SUMMARY_BLANK,
            "truncated": CompactionReason.SUMMARY_TRUNCATED,
        }.get(kind, CompactionReason.COMPACTED)

    def race(self, data: st.DataObject, depth: int) -> None:
        """What another service does while the summarizer works."""
        by = data.draw(services, "racer")
        match data.draw(st.sampled_from(["message", "custom", "extend", "compact", "abandon"]), "race"):
            case "message":
                self.append(by, [self.new_message(data)])
            case "custom":
                self.append(by, [NewEvent(type=EventType.of("NOTE"), payload={})])
            case "compact" if depth < 2:
                self.run_pass(data, by, data.draw(windows), data.draw(summarizers), depth + 1)
            case _:
                self.update_metadata(by, {"raced": True})

    def check_recorded(
        self, result: CompactionResult, expected: Expected, view: Sequence[SessionEvent]
    ) -> None:
        boundary = self.record(result)
        groups = [result.pinned_events, result.covered_events, result.preserved_events]
        pinned, covered, preserved = (tuple(event.id for event in group) for group in groups)
        assert (boundary.pinned, boundary.preserved) == (pinned, preserved)
        assert boundary.covered_count == len(covered)
        if expected.is_plain:
            assert (pinned, covered, preserved) == (expected.pinned, expected.covered, expected.preserved)
        assert starts_turn(result.preserved_events[0]), "law 4: the kept conversation starts at a turn start"
        newest_turn = [event.id for event in view if starts_turn(event)][-1]
        assert newest_turn in preserved, "law 4: the newest turn is kept"
        left = set(covered)
        assert not [pair for pair in pairs(view) if (pair[0] in left) != (pair[1] in left)], "law 4: parted"
        assert not left & awaiting(self.log), "law 4: an awaited call keeps its turn"
        assert result.tokens_after == sent_cost(self.view_events())
        superseded = sum(cost_of(e) for e in view) - sent_cost(view)
        covered_cost = sum(map(cost_of, result.covered_events)) - superseded
        assert result.tokens_estimated_saved == max(
            0, covered_cost - sum(map(cost_of, result.summary_events))
        )

    def record(self, result: CompactionResult) -> CompactionBoundary:
        """Law 3: the boundary and its summary are one write, the newest of the log."""
        event, summary = result.boundary, result.summary_events
        assert event is not None
        assert event.boundary is not None
        self.messages += len(summary)
        self.wrote(event.version + len(summary), entries=1 + len(summary))
        assert result.version == self.version
        self.read_log((event, *summary))
        assert [message.id for message in summary] == list(event.boundary.summary)
        assert {one.timestamp for one in (event, *summary)} == {self.times[-1]}
        assert all(message.synthetic for message in summary)
        return event.boundary

    def wrote(self, version: int, *, entries: int) -> None:
        """A write ended at this version."""
        self.times += [max(self.now, self.times[-1])] * (version - self.version)
        self.version = version
        self.write_ends[version] = len(self.log) + entries

    def read_log(self, new: tuple[SessionEvent, ...]) -> None:
        log = self.services[-1].get_events(SESSION)
        assert log[: len(self.log)] == self.log, "law 1: an earlier copy of the log is a prefix of it"
        assert log[len(self.log) :] == new, "law 1: what was answered is what is stored"
        self.log = log

    def view_events(self) -> tuple[SessionEvent, ...]:
        held = {event.id: event for event in self.log}
        return tuple(held[name] for name in view_ids(self.log))

    # --- what always holds

    @invariant()
    def the_log_is_as_it_was(self) -> None:
        assert self.services[0].get_events(SESSION) == self.log
        assert len({event.id for event in self.log}) == len(self.log), "law 8: each id once"

    @invariant()
    def all_views_are_equal(self) -> None:
        expected = self.view_events()
        assert project(self.log).events == replay(self.log).events == expected
        fresh = SessionService(self.services[0].app, token_estimator=CountedCharacters(), clock=self.clock)
        for service in (*self.services, fresh):
            view = service.view(SESSION)
            assert view.events == expected, "law 2: the view is a function of the log"
            assert view.version == self.version

    @invariant()
    def every_anchor_is_the_fold(self) -> None:
        stream = self.stream()
        state = None
        for event in stream:
            state = fold([event], state)
            carried = event.state_carried()
            assert carried is None or carried == state, "law 2: a stored anchor equals the fold"
        assert state is not None
        app = self.services[0].app
        stored: Session = app.repository.get(aggregate_id(SESSION))
        assert stored.state == state, "law 2: the repository's state equals the fold"
        waiting = {event.id for event in self.log if event.version in {c.version for c in state.awaited}}
        assert waiting == awaiting(self.log), "law 4: the calls that are awaited"

    @invariant()
    def the_chain_holds(self) -> None:
        stream = self.stream()
        assert [event.chain for event in stream] == chain_of(stream)

    @invariant()
    def times_never_go_backwards(self) -> None:
        assert [event.timestamp for event in self.stream()] == self.times, "law 6"

    @invariant()
    def what_is_known_of_the_session_is_right(self) -> None:
        for service in self.services:
            found = service.find(SESSION)
            assert found is not None
            assert (found.version, found.metadata, found.expires_at) == (
                self.version,
                self.metadata,
                self.expires_at,
            )
            (row,) = service.list_sessions()
            assert (row.session_id, row.version, row.messages) == (SESSION, self.version, self.messages)
            assert (row.expires_at, row.modified_at) == (self.expires_at, self.times[-1])

    def teardown(self) -> None:
        if len(self.write_ends) > 1 or self.log:
            self.check_the_past()
        for service in self.services:
            service.close()

    def check_the_past(self) -> None:
        """Law 2 and law 6 at every version that ends a write, and at every recorded time."""
        service = self.services[1]
        for version, entries in self.write_ends.items():
            then = service.view(SESSION, at_version=version)
            assert then.events == project(self.log[:entries]).events
            assert then.version == version
        for time in set(self.times):
            last = max(version for version, recorded in enumerate(self.times) if recorded <= time)
            assert service.view(SESSION, at_time=time).version == last

    def stream(self) -> list[StreamEvent]:
        events: list[Any] = list(self.services[0].app.events.get(aggregate_id(SESSION)))
        return events


def _never(_: CompactionRequest) -> bool:
    return False


def _window(unit: Unit, size: int) -> CompactionWindow:
    match unit:
        case "events":
            return CompactionWindow.last_events(size)
        case "turns":
            return CompactionWindow.last_turns(size)
        case "tokens":
            return CompactionWindow.token_budget(size)


def _content(event: NewEvent | SessionEvent) -> tuple[object, ...]:
    message = None if event.message is None else (event.message.role, event.message.to_dict())
    return event.type, event.branch, event.synthetic, message, event.payload


def _moves_idle(event: SessionEvent) -> bool:
    return event.role in ("user", "assistant") and not event.synthetic
