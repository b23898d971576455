"""Law 11: what append, view and compact read follows the view, not the log. Rows are counted, not seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from tests.laws.machine import CountedCharacters

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.ids import aggregate_id
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

WINDOW = WindowCompactionStrategy(CompactionWindow.last_events(10))
SMALL, LARGE = 100, 20_000


def only_messages(number: int) -> NewEvent:
    """User and assistant in turn."""
    return NewEvent(message=Message.user("hi") if number % 2 == 0 else Message.assistant("hi"))


def custom_events_between(number: int) -> NewEvent:
    """Twenty events of the application's own between two messages."""
    return only_messages(number // 21) if number % 21 == 0 else NewEvent(type="ACME.NOTE", payload={})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] # any text is a type


def many_branches(number: int) -> NewEvent:
    """Of ten messages nine on branches of their own."""
    message = only_messages(number // 10)
    return message if number % 10 == 0 else NewEvent(message=Message.assistant("hi"), branch=f"b{number % 9}")


def awaited_calls(number: int) -> NewEvent:
    """Calls that await their result and get it, one after the other."""
    parts: list[dict[str, Any]] = [
        {"type": "tool_call", "id": "c", "name": "f", "awaiting": True},
        {"type": "tool_call_response", "id": "c", "response": "ok"},
    ]
    messages = [Message.user("hi"), Message.assistant(parts[:1]), Message.tool(parts[1:])]
    return NewEvent(message=messages[number % 3])


Mix = Callable[[int], NewEvent]
MIXES: Sequence[tuple[Mix, int]] = (
    (only_messages, 50),
    (only_messages, 2000),
    (custom_events_between, 420),
    (many_branches, 100),
    (awaited_calls, 60),
)
"""What the log is made of, and after how many events it is compacted each time."""


class CountedReads:
    """How many stored events and rows a service read, by the method that read them."""

    def __init__(self, sessions: SessionService, patch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        recorder = sessions.app.recorder
        select = recorder.select_events

        def counted(originator_id: UUID | str, **criteria: Any) -> Sequence[StoredEvent]:
            found = select(originator_id, **criteria)
            self.counts["queries"] += 1
            self.counts["events"] += len(found)
            return found

        patch.setattr(recorder, "select_events", counted)
        patch.setattr(recorder, "select_notifications", self._refuse)

    @staticmethod
    def _refuse(*_: object, **__: object) -> Sequence[Any]:
        raise AssertionError("The notification log is not read for a session")

    def during(self, act: Callable[[], object]) -> Counter[str]:
        """What this one act read."""
        self.counts.clear()
        act()
        return self.counts.copy()


def _new_app() -> Sessions:
    return Sessions(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": ":memory:"})


def _grow(sessions: SessionService, mix: Mix, every: int, size: int) -> None:
    """A log of this many events and a few more, with the same steps at its end whatever its size."""
    for start in range(0, size, every):
        sessions.append_events("s", [mix(number) for number in range(start, start + every)])
        sessions.compact("s", None, WINDOW)
    sessions.append_events("s", [mix(number) for number in range(every // 2)])


def _reads(app: Sessions, patch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    """What each use case reads, by a service that knows nothing yet and by one that does."""
    sessions = SessionService(app, token_estimator=CountedCharacters())
    reads = CountedReads(sessions, patch)
    acts: dict[str, Callable[[], object]] = {
        "cold append": lambda: sessions.append_message("s", Message.user("one more")),
        "warm append": lambda: sessions.append_message("s", Message.user("one more")),
        "append with an id": lambda: sessions.append_message("s", Message.user("again"), event_id="given"),
        "repeat": lambda: sessions.append_message("s", Message.user("again"), event_id="given"),
        "version": lambda: sessions.version("s"),
        "find": lambda: sessions.find("s"),
        "view": lambda: sessions.view("s"),
        "view again": lambda: sessions.view("s"),
        "old view": lambda: sessions.view("s", at_version=sessions.version("s") - 5),
        "compact": lambda: sessions.compact("s", None, WINDOW),
        "view afterwards": lambda: sessions.view("s"),
        "framework load": lambda: app.repository.get(aggregate_id("s")),
    }
    found = {name: reads.during(act) for name, act in acts.items()}
    patch.undo()
    return found


def _reads_of_a_log(mix: Mix, every: int, size: int, patch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    app = _new_app()
    sessions = SessionService(app, token_estimator=CountedCharacters())
    sessions.create("s", metadata={"title": "t"})
    _grow(sessions, mix, every, size)
    assert sessions.version("s") > size
    reads = _reads(app, patch)
    app.close()
    return reads


@pytest.mark.parametrize(("mix", "every"), MIXES)
def test_a_log_two_hundred_times_as_long_costs_as_many_reads(
    mix: Mix, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = _reads_of_a_log(mix, every, max(SMALL, 2 * every), monkeypatch)
    assert _reads_of_a_log(mix, every, LARGE, monkeypatch) == short


def test_a_view_of_many_ranges_is_loaded_by_a_bounded_number_of_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where each message is a range of its own, an event names an anchor at most ranges/8 events behind."""
    app = _new_app()
    sessions = SessionService(app, token_estimator=CountedCharacters())
    sessions.create("s")
    for _ in range(200):
        sessions.append_events("s", [only_messages(0), *[custom_events_between(1)] * 40])
    reads = _reads(app, monkeypatch)
    app.close()
    assert reads["cold append"]["events"] <= 1 + 200 // 8 + 1
    assert reads["warm append"]["events"] == 0
    assert reads["view"]["queries"] <= 205
