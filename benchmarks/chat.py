"""What a turn costs beyond the time of its model, which is a script that takes none. Requests are rendered.

Every figure is a median. Run it with `make bench`; `--quick` takes a smaller log.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.core import MESSAGE, STRATEGY, TRIGGER, Row, fill, folder_in, microseconds, service, text_of
from turnlog.application import SessionService
from turnlog.application.chat import (
    ChatDelta,
    ChatReply,
    ChatRequest,
    FinishReason,
    RenderedRequest,
    SessionChat,
    TextDelta,
)
from turnlog.application.chat.calibration import CalibratedTrigger
from turnlog.domain import (
    CompactionWindow,
    Message,
    TokenCountTrigger,
    ToolCallPart,
    WindowCompactionStrategy,
)
from turnlog.infrastructure.formats import openai_chat

Clock: TypeAlias = Callable[[], float]

VIEW = WindowCompactionStrategy(CompactionWindow.last_turns(20))
"""Keeps 20 turns in the view: 40 messages, or 80 with tools."""
NEVER = TokenCountTrigger(10**9)
ANSWER = ChatReply(Message.assistant(text_of(500)), FinishReason.STOP)
CALLS = ChatReply(Message.assistant([ToolCallPart(id="c1", name="look")]), FinishReason.TOOL_CALL)


class Script:
    """A model that answers at once; its requests are those of Chat Completions."""

    provider = "scripted"
    model = "m"

    def __init__(self, answers: Sequence[ChatReply]) -> None:
        self._answers = answers
        self._asked = 0
        self.made: list[float] = []
        """When the pieces of streamed answers were made."""

    def render(self, request: ChatRequest, *, stream: bool = False) -> RenderedRequest:
        """The request as it would be sent."""
        tools = [{"name": tool.name, "parameters": tool.parameters} for tool in request.tools]
        body = openai_chat.request(request.conversation, model=self.model, tools=tools, prefill=True)
        return RenderedRequest(
            json.dumps(body).encode(), "openai.chat/1", self.model, request, is_stream=stream
        )

    def complete(self, rendered: RenderedRequest, *, on_send: object = None) -> ChatReply:  # noqa: ARG002 - the port's arguments
        """The next answer."""
        self._asked += 1
        return self._answers[(self._asked - 1) % len(self._answers)]

    @contextmanager
    def stream(self, rendered: RenderedRequest, *, on_send: object = None) -> Generator[Pieces]:  # noqa: ARG002 - the port's arguments
        """The next answer, in pieces."""
        yield Pieces(self.complete(rendered), self.made)


class Pieces:
    """A streamed answer of ten pieces."""

    def __init__(self, reply: ChatReply, made: list[float]) -> None:
        self.reply = reply
        self._made = made

    def __iter__(self) -> Iterator[ChatDelta]:
        for _ in range(10):
            self._made.append(time.perf_counter())
            yield TextDelta("word ")


def look() -> str:
    """Looks somewhere."""
    return text_of(500)


def with_view(sessions: SessionService, session_id: str) -> None:
    """A session of 40 messages in the view."""
    sessions.create(session_id)
    for _ in range(20):
        sessions.append_events(session_id, [MESSAGE, ANSWER.message])


def per_message(
    sessions: SessionService, session_id: str, chat: SessionChat, messages: int, rounds: int, clock: Clock
) -> float:
    """The median seconds of a turn, for each message that it stores; the view has 20 turns each time."""
    measured: list[float] = []
    for _ in range(rounds):
        start = clock()
        chat.send(session_id, MESSAGE)
        measured.append((clock() - start) / messages)
        sessions.compact(session_id, None, VIEW)
    return statistics.median(measured)


def turns(folder: Path, where: str, rounds: int) -> Iterator[Row]:
    """Turns without and with a tool: processor time on tmpfs, time on disk."""
    clock = time.process_time if where == "tmpfs" else time.perf_counter
    with service(folder) as sessions:
        with_view(sessions, "s")
        for what, answers, messages in (
            ("a turn", [ANSWER], 2),
            ("a turn with a tool", [CALLS, ANSWER], 4),
        ):
            chat = SessionChat(sessions, Script(answers), tools=[look], trigger=NEVER, strategy=VIEW)
            chat.send("s", MESSAGE)
            seconds = per_message(sessions, "s", chat, messages, rounds, clock)
            limit = 3 if where == "tmpfs" else None
            yield Row(f"{what}, per message, {where} (ms)", microseconds(seconds), seconds * 1000, limit)


def commits(folder: Path) -> Iterator[Row]:
    """Transactions of a turn with a tool, for each message that it stores."""
    with service(folder) as sessions:
        with_view(sessions, "s")
        chat = SessionChat(sessions, Script([CALLS, ANSWER]), tools=[look], trigger=NEVER, strategy=VIEW)
        written = 0
        recorder: Any = sessions.app.recorder
        insert: Callable[..., Any] = recorder.insert_events

        def counted(*events: Any, **named: Any) -> Any:
            nonlocal written
            written += 1
            return insert(*events, **named)

        recorder.insert_events = counted
        for _ in range(10):
            chat.send("s", MESSAGE)
        yield Row("transactions : messages stored", f"{written} : 40", written / 40, 1)


def first_token(folder: Path, rounds: int) -> Iterator[Row]:
    """From the moment when a piece is made to the moment when the reader has it."""
    with service(folder) as sessions:
        with_view(sessions, "s")
        model = Script([ANSWER])
        chat = SessionChat(sessions, model)
        waited: list[float] = []
        for _ in range(rounds):
            model.made.clear()
            with chat.stream("s", MESSAGE) as turn:
                next(event for event in turn if isinstance(event, TextDelta))
                waited.append(time.perf_counter() - model.made[0])
            sessions.compact("s", None, VIEW)
        seconds = statistics.median(waited)
        yield Row("a streamed token is passed on (ms)", microseconds(seconds), seconds * 1000, 1)


def trigger(folder: Path, size: int, rounds: int) -> Iterator[Row]:
    """A trigger that does not fire, calibrated, on a warm session."""
    with service(folder, "log.db") as sessions:
        fill(sessions, "s", size)
        asked = CalibratedTrigger(NEVER, "m")
        measured: list[float] = []
        for _ in range(rounds):
            start = time.perf_counter()
            sessions.compact("s", asked, STRATEGY)
            measured.append(time.perf_counter() - start)
        seconds = statistics.median(measured)
        yield Row(f"a trigger that does not fire, {size:,} (ms)", microseconds(seconds), seconds * 1000, 0.2)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a log of 10,000 messages instead of 100,000")
    quick = parser.parse_args().quick
    rounds = 50 if quick else 200
    memory = Path("/dev/shm")  # noqa: S108 - tmpfs, where no sync hides the software
    tmpfs = memory if os.access(memory, os.W_OK) else None
    print(f"| {'what':<44} | {'median':>17} | ratio | limit |      |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    assert TRIGGER.tokens < NEVER.tokens  # noqa: S101 - `fill` compacts, what is measured does not
    with folder_in(tmpfs) as fast, folder_in(Path.cwd()) as disk:
        for row in turns(fast, "tmpfs", rounds):
            print(row, flush=True)
        for row in turns(disk, "disk", rounds // 4):
            print(row, flush=True)
    measures: Sequence[Callable[[Path], Iterator[Row]]] = (
        commits,
        partial(first_token, rounds=rounds),
        partial(trigger, size=10_000 if quick else 100_000, rounds=rounds),
    )
    for measure in measures:
        with folder_in(tmpfs) as fast:
            for row in measure(fast):
                print(row, flush=True)


if __name__ == "__main__":
    main()
