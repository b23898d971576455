"""Short conversations in one line each, and every strategy there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.branches.random_logs import Summarizer
from tests.laws.machine import CountedCharacters

from turnlog.application.service import SessionService
from turnlog.domain.archive import (
    RecursiveSummarizationCompactionStrategy,
    SlidingWindowCompactionStrategy,
    TokenCountCompactionStrategy,
    TurnWindowCompactionStrategy,
)
from turnlog.domain.compaction import CompactionStrategy, SummaryRequest
from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID = "s"


def service() -> SessionService:
    """A service in memory with one empty session. A message costs one token, and one for each character."""
    sessions = SessionService(token_estimator=CountedCharacters())
    sessions.create(SID)
    return sessions


def say(sessions: SessionService, conversation: str, *, cost: int = 3) -> None:
    """Append messages written as `u1 k1:c1,c2 t1:c1 t2:c2 a1 s1 x1`, each of which costs this many tokens.

    `u` is the user, `a` the assistant, `k` the assistant with calls, `t` a result, `s` system, `x` a summary.
    A call or a result costs one token, whatever its ids.
    """
    sessions.append_events(SID, [_event(word, "x" * (cost - 1)) for word in conversation.split()])


def _event(word: str, text: str) -> NewEvent:
    name, _, calls = word.partition(":")
    messages: Mapping[str, Callable[[], Message]] = {
        "u": lambda: Message.user(text),
        "a": lambda: Message.assistant(text),
        "s": lambda: Message.system(text),
        "x": lambda: Message.assistant(text),
        "k": lambda: Message.assistant([ToolCallPart(id=call, name="f") for call in calls.split(",")]),
        "t": lambda: Message.tool([ToolCallResponsePart(id=calls, response="ok")]),
    }
    return NewEvent(message=messages[name[0]](), id=name, synthetic=name.startswith("x"))


def shown(sessions: SessionService) -> str:
    """The ids of the view, in one line."""
    return " ".join(sessions.view(SID).ids)


class Unasked:
    """A summarizer that must not be asked."""

    def summarize(self, request: SummaryRequest) -> list[Message]:  # noqa: ARG002 - the port's argument
        """Nothing: it fails."""
        raise AssertionError("the model was asked though there was nothing to summarize")


def unasked(_: object) -> str:
    """A model that must not be asked."""
    raise AssertionError("the model was asked though there was nothing to summarize")


def every_strategy(summarizer: Any = None, model: Any = None, size: int = 1) -> dict[str, CompactionStrategy]:
    """Each strategy with the smallest window, or one of this size."""
    windows = (
        CompactionWindow.last_events(size),
        CompactionWindow.last_turns(size),
        CompactionWindow.token_budget(size),
    )
    by_window: dict[str, CompactionStrategy] = {
        f"{window.unit} {how}": WindowCompactionStrategy(window, writes)
        for window in windows
        for how, writes in (("dropped", None), ("summarized", summarizer or Summarizer()))
    }
    return {
        **by_window,
        "sliding": SlidingWindowCompactionStrategy(size),
        "turn window": TurnWindowCompactionStrategy(size),
        "token count": TokenCountCompactionStrategy(size),
        "recursive": RecursiveSummarizationCompactionStrategy(
            model or (lambda _: "a recap"), size, overlap_size=0
        ),
    }


STRATEGIES = sorted(every_strategy())
"""Their names."""
