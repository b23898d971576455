"""Random conversations of several branches at once, and random passes over them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.laws.machine import CountedCharacters
from tests.laws.oracle import Unit

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions
from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionStrategy, SummaryRequest
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.window import CompactionWindow

BRANCHES = ("a", "a.b", "a.b.c", "ab", "d")
"""Nested ones, one whose name begins like another's, and one that stands apart."""

SCOPES = (None, *BRANCHES)

branches: SearchStrategy[str | None] = st.sampled_from((None, None, *BRANCHES))

_BLOCKS = ("turn", "turn", "turn", "tool turn", "parallel tools", "question", "answer", "system")
_RARE_BLOCKS = ("summary", "summary", "late result", "awaited call", "reused id", "system within")

Meanwhile: TypeAlias = Callable[[], object]


@st.composite
def conversations(draw: st.DrawFn, most: int = 14) -> list[NewEvent]:
    """Messages of several branches that each go on in their own order, in between those of the others."""
    blocks = draw(st.lists(st.tuples(branches, st.sampled_from(_BLOCKS * 2 + _RARE_BLOCKS)), max_size=most))
    waiting: dict[str | None, list[NewEvent]] = {}
    for branch, block in blocks:
        waiting.setdefault(branch, []).extend(_block(branch, block))
    order = draw(st.permutations([event.branch for events in waiting.values() for event in events]))
    return [waiting[branch].pop(0) for branch in order]


def _block(branch: str | None, block: str) -> Iterator[NewEvent]:
    said: Sequence[Message]
    match block:
        case "turn":
            said = (Message.user("question"), Message.assistant("an answer"))
        case "tool turn":
            said = (Message.user("look"), _asks("c1"), _answers("c1"), Message.assistant("found"))
        case "parallel tools":
            said = (Message.user("look"), _asks("c1", "c2"), _answers("c2"), _answers("c1"))
        case "question":
            said = (Message.user("?"),)
        case "answer":
            said = (Message.assistant("by the way"),)
        case "system":
            said = (Message.system("rules"),)
        case "late result":
            said = (_asks("c3"), Message.user("still there?"), _answers("c3"))
        case "awaited call":
            said = (Message.user("book"), _asks("c4", awaiting=True))
        case "system within":
            said = (Message.user("look"), _asks("c1"), Message.system("rules"), _answers("c1"))
        case "reused id":
            said = (Message.user("twice"), _asks("c1", "c1"), _answers("c1"), _answers("c1"))
        case _:
            yield NewEvent(message=Message.assistant("recap"), branch=branch, synthetic=True)
            return
    yield from (NewEvent(message=message, branch=branch) for message in said)


def _asks(*ids: str, awaiting: bool = False) -> Message:
    return Message.assistant([ToolCallPart(id=name, name="f", awaiting=awaiting) for name in ids])


def _answers(call_id: str) -> Message:
    return Message.tool([ToolCallResponsePart(id=call_id, response="ok")])


class Summarizer:
    """Writes a summary that names its branch, and does something else before it answers."""

    def __init__(self, meanwhile: Meanwhile = lambda: None) -> None:
        self._meanwhile = meanwhile

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        """The summary."""
        self._meanwhile()
        return (Message.user("so far?"), Message.assistant(f"summary of {request.branch}"))


def _sized(unit: Unit, most: int) -> SearchStrategy[tuple[Unit, int]]:
    return st.integers(1, most).map(lambda size: (unit, size))


windows = _sized("events", 4) | _sized("turns", 3) | _sized("tokens", 60)


def window_of(unit: Unit, size: int) -> CompactionWindow:
    """The window of this kind and size."""
    makers = {
        "events": CompactionWindow.last_events,
        "turns": CompactionWindow.last_turns,
        "tokens": CompactionWindow.token_budget,
    }
    return makers[unit](size)


def archive_strategies(meanwhile: Meanwhile = lambda: None) -> SearchStrategy[CompactionStrategy]:
    """The four of the archive design; the one that summarizes does something else before it answers."""

    def recap(answer: str) -> Callable[[object], str]:
        return lambda _: (meanwhile(), answer)[1]

    return st.one_of(
        st.builds(SlidingWindowCompactionStrategy, st.integers(1, 4)),
        st.builds(TurnWindowCompactionStrategy, st.integers(1, 3)),
        st.builds(TokenCountCompactionStrategy, st.integers(1, 60)),
        st.builds(
            RecursiveSummarizationCompactionStrategy,
            st.sampled_from(["a recap", "a recap", ""]).map(recap),
            max_events_to_keep=st.integers(1, 4),
            overlap_size=st.just(0),
        ),
    )


@contextmanager
def service_on(store: str) -> Generator[SessionService]:
    """A service in memory, or on a SQLite file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.db"
        env: dict[str, Any] = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
        with Sessions(env=env if store == "sqlite" else {}) as app:
            yield SessionService(app, token_estimator=CountedCharacters())
