"""What audits cost on a long log: the view at any version, why a message is in it, the proof of the whole.

Every figure is a median, or the worst of many where it says so, and is processor time, reads of the database
included, so that a busy machine does not count. Run it with `make bench`; `--quick` takes smaller logs.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.core import MESSAGE, Row, service
from turnlog.application import SessionService
from turnlog.application.audit import PromptRecorder, SessionAudit
from turnlog.application.chat.model import ChatRequest, RenderedRequest
from turnlog.domain import (
    CompactionResult,
    EventFilter,
    NewEvent,
)
from turnlog.domain.chain import GENESIS
from turnlog.domain.compaction import CompactionReason, CompactionRequest
from turnlog.domain.log import EventType
from turnlog.domain.session import Session
from turnlog.domain.turns import cut_at_turn
from turnlog.infrastructure.models import OpenAIChatModel

NOTE = EventType.of("ACME.NOTE")
MIXES: Mapping[str, Callable[[int], NewEvent]] = {
    "messages": lambda _: NewEvent(message=MESSAGE),
    "40 events between": lambda number: (
        NewEvent(type=NOTE, payload={"n": number}) if number % 41 else NewEvent(message=MESSAGE)
    ),
    "many branches": lambda number: NewEvent(
        message=MESSAGE, branch=f"b{number % 9}" if number % 10 else None
    ),
}
MOST = 1_000
"""Messages that a view grows to."""


class Newest:
    """A strategy that keeps the newest fifth, from a turn start on."""

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Cover what is in front."""
        events = request.events
        cut = cut_at_turn(events, len(events) - MOST // 5)
        return CompactionResult(
            CompactionReason.COMPACTED, covered_events=events[:cut], preserved_events=events[cut:]
        )


class EveryOther:
    """A strategy that leaves holes: it keeps every other message."""

    def compact(self, request: CompactionRequest) -> CompactionResult:
        """Cover every other message of the older half."""
        older, newer = request.events[: MOST // 2], request.events[MOST // 2 :]
        return CompactionResult(
            CompactionReason.COMPACTED,
            covered_events=older[::2],
            preserved_events=(*older[1::2], *newer),
        )


def fill(
    sessions: SessionService,
    session_id: str,
    make: Callable[[int], NewEvent],
    events: int,
    *,
    scattered: bool = False,
) -> None:
    """A session of so many events whose view goes up to a thousand messages."""
    sessions.create(session_id)
    in_view = 0
    for first in range(0, events, 200):
        batch = [make(number) for number in range(first, min(first + 200, events))]
        sessions.append_events(session_id, batch)
        in_view += sum(event.message is not None for event in batch)
        if in_view + 200 > MOST:
            sessions.compact(session_id, None, EveryOther() if scattered else Newest())
            in_view = len(sessions.view(session_id))


def worst(action: Callable[[int], object], versions: Sequence[int]) -> tuple[float, float]:
    """Median and longest seconds of the action over these versions."""
    times: list[float] = []
    for version in versions:
        start = time.process_time()
        action(version)
        times.append(time.process_time() - start)
    return statistics.median(times), max(times)


def cold_view(file: Path, version: int) -> tuple[float, int]:
    """Seconds of `view_at` by a service that remembers nothing, and the messages of the view. Of three tries
    the shortest counts, so that a garbage collection of the whole process does not."""
    with service(file.parent, file.name) as sessions:
        audit = SessionAudit(sessions)
        start = time.process_time()
        found = audit.view_at("log", version)
        return time.process_time() - start, len(found.entries)


def views(folder: Path, events: int, rounds: int) -> Iterator[Row]:
    """The view at random versions, each by a service that remembers nothing."""
    chance = random.Random(7)
    kinds = [(name, make, False) for name, make in MIXES.items()]
    kinds.append(("a view with holes", MIXES["messages"], True))
    for number, (name, make, scattered) in enumerate(kinds):
        file = folder / f"{number}.db"
        sessions = service(folder, file.name)
        fill(sessions, "log", make, events, scattered=scattered)
        newest = sessions.version("log")
        versions = [newest, *(chance.randrange(newest) for _ in range(rounds))]
        seen = [min(cold_view(file, version) for _ in range(3)) for version in versions]
        times, sizes = [seconds for seconds, _ in seen], [size for _, size in seen]
        longest = max(times)
        figure = f"{longest * 1000:.1f} ms, {max(sizes)} msgs"
        yield Row(f"view_at, {name}, worst (ms)", figure, longest * 1000, 50)
        median = statistics.median(times) * 1000
        yield Row(f"view_at, {name}, median (ms)", f"{median:.1f} ms", median, None)
        if name == "messages":
            yield from whys(sessions, versions)
        sessions.close()


def whys(sessions: SessionService, versions: Sequence[int]) -> Iterator[Row]:
    """Why messages are in the view, and the proof of the whole log."""
    audit = SessionAudit(sessions)
    ids = {event.version: event.id for event in sessions.iter_events("log") if event.message}
    known = [version for version in versions if version in ids]
    median, longest = worst(lambda version: audit.explain("log", ids[version]), known)
    yield Row("explain, worst (ms)", f"{longest * 1000:.1f} ms", longest * 1000, None)
    yield Row("explain, median (ms)", f"{median * 1000:.1f} ms", median * 1000, None)
    start = time.process_time()
    found = audit.verify("log")
    seconds = time.process_time() - start
    if not found.is_whole:
        raise SystemExit(str(found))
    each = seconds / found.events
    yield Row("verify, for each event (µs)", f"{each * 1e6:.0f} µs", each * 1e6, None)


@dataclass(frozen=True)
class _Call:
    """One request, for the recorder."""

    rendered: RenderedRequest
    version: int
    session_id: str = "chat"
    turn_id: str = "turn"
    branch: str | None = None
    turn_from: int = 0
    attempt: int = 1
    filter: EventFilter | None = None


def prompts(folder: Path, rounds: int) -> Iterator[Row]:
    """What recording a prompt costs beside rendering it, and how large it is."""
    sessions = service(folder, "prompts.db")
    sessions.create("chat")
    model = OpenAIChatModel("m", api_key="none")
    recorder = PromptRecorder(sessions)
    for size in (40, 1_000):
        missing = size - len(sessions.view("chat"))
        sessions.append_events("chat", [NewEvent(message=MESSAGE)] * missing)
        view = sessions.view("chat")
        rendered = model.render(ChatRequest(view.events))
        call = _Call(rendered, view.version)
        events = recorder.prompt(call)
        kept = len(json.dumps(dict(events[-1].payload or {})))
        median, _ = worst(lambda _, call=call: recorder.prompt(call), range(rounds))  # type: ignore[misc]
        yield Row(f"record a prompt, {size} messages (ms)", f"{median * 1e3:.1f} ms", median * 1e3, None)
        yield Row(f"bytes of a prompt, {size} messages", f"{kept} B", kept, 1_000)
        stored = sessions.append_event("chat", events[-1])
        told = partial(SessionAudit(sessions).told, "chat", stored.id)
        median, _ = worst(lambda _, told=told: told(), range(rounds))  # type: ignore[misc]
        yield Row(f"told, {size} messages (ms)", f"{median * 1e3:.1f} ms", median * 1e3, None)
    sessions.close()


def chain(times: int) -> Iterator[Row]:
    """What a message of 500 bytes costs more because it is linked into the chain."""
    session = Session.open("linked", now=datetime.now(UTC))
    event = session.append(NewEvent(message=MESSAGE), event_id="message", now=datetime.now(UTC))
    began = time.process_time()
    for _ in range(times):
        secrets.token_hex(16)
        event.linked_to(GENESIS)
    each = (time.process_time() - began) / times
    yield Row("link a message into the chain (µs)", f"{each * 1e6:.1f} µs", each * 1e6, 10)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"| {'what':<44} | {'median':>17} | ratio | limit |      |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108
        for row in views(Path(folder), 5_000 if quick else 100_000, 10 if quick else 60):
            print(row, flush=True)
        for row in prompts(Path(folder), 10 if quick else 50):
            print(row, flush=True)
    for row in chain(20_000):
        print(row, flush=True)


if __name__ == "__main__":
    main()
