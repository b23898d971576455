"""What is sent of a long turn: old results as placeholders, then old rounds not at all.

A boundary never cuts the newest turn, so a turn that grows beyond the request is shortened as it is sent. Log
and view stay as they are. A round is a message with calls and their results; calls and results go together.
What is shortened depends on the rounds alone, and it moves in steps, so that requests in between begin with
the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role, ToolCallResponsePart

_LOWERED_TO = 0.75
"""The share of the limit down to which old rounds are left out, once they have to be."""


@dataclass(frozen=True)
class Shortened:
    """The events of a turn as they are sent. `placeholders` are by the id of the event they stand in."""

    events: tuple[SessionEvent, ...]
    placeholders: Mapping[str, str] = field(default_factory=dict[str, str])
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Round:
    """Places of a message with calls and of its results; what it costs whole, and with placeholders."""

    call: int
    results: tuple[int, ...]
    whole: int
    short: int


def shortened(
    events: Sequence[SessionEvent],
    limit: int,
    keep: int,
    tokens: Callable[[SessionEvent], int],
) -> Shortened:
    """The events of a turn such that they cost at most `limit` tokens, if that can be.

    The results of the newest `keep` rounds stay whole as long as that fits; those of the newest round always
    stay.
    """
    if sum(map(tokens, events)) <= limit:
        return Shortened(tuple(events))
    small = {place: _placeholder(event, tokens) for place, event in enumerate(events) if _results(event)}
    rounds = list(_rounds(events, small, tokens))
    beside = sum(map(tokens, events)) - sum(one.whole for one in rounds)
    short, gone = _depth(rounds, beside + tokens(_note(len(rounds), events)), limit, keep)
    left_out = {place for one in rounds[:gone] for place in (one.call, *one.results)}
    replaced = {
        place: small[place]
        for one in rounds[gone:short]
        for place in one.results
        if small[place] is not events[place]
    }
    sent = [replaced.get(place, event) for place, event in enumerate(events) if place not in left_out]
    if left_out:
        sent.insert(rounds[0].call, _note(gone, [events[place] for place in sorted(left_out)]))
    return Shortened(
        tuple(sent),
        {event.id: _text_of(event) for event in replaced.values()},
        tuple(events[place].id for place in sorted(left_out)),
    )


def _depth(rounds: Sequence[_Round], beside: int, limit: int, keep: int) -> tuple[int, int]:
    """How many rounds have placeholders or are gone, and how many are gone: decided anew with each round."""
    short = gone = 0
    total = beside
    for count, newest in enumerate(rounds, 1):
        total += newest.whole
        for kept in (keep, 1):
            if total > limit:
                for one in rounds[short : max(short, count - kept)]:
                    total += one.short - one.whole
                    short += 1
            if total > limit:
                while total > limit * _LOWERED_TO and gone < count - kept:
                    total -= rounds[gone].short
                    gone += 1
    return short, gone


def _rounds(
    events: Sequence[SessionEvent],
    small: Mapping[int, SessionEvent],
    tokens: Callable[[SessionEvent], int],
) -> Iterator[_Round]:
    asked = [place for place, event in enumerate(events) if event.role is Role.ASSISTANT and event.tool_calls]
    for call, following in pairwise([*asked, len(events)]):
        results = tuple(place for place in range(call + 1, following) if place in small)
        own = tokens(events[call])
        yield _Round(
            call,
            results,
            own + sum(tokens(events[place]) for place in results),
            own + sum(tokens(small[place]) for place in results),
        )


def _results(event: SessionEvent) -> bool:
    return event.role is Role.TOOL and bool(event.message and event.message.tool_responses)


def _placeholder(event: SessionEvent, tokens: Callable[[SessionEvent], int]) -> SessionEvent:
    """The event with a placeholder for its results, or itself when that would save nothing."""
    assert event.message is not None  # noqa: S101 - it has results
    cost = tokens(event)
    where = f"in the log as event {event.id}" if event.id else "not in the log"
    text = f"[left out here: a result of {cost:,} tokens; it is {where}]"
    parts = tuple(
        part.model_copy(update={"response": text}) if isinstance(part, ToolCallResponsePart) else part
        for part in event.message.parts
    )
    small = replace(event, message=event.message.model_copy(update={"parts": parts}))
    return small if tokens(small) < cost else event


def _text_of(event: SessionEvent) -> str:
    assert event.message is not None  # noqa: S101 - it has results
    response = event.message.tool_responses[0].response
    assert isinstance(response, str)  # noqa: S101 - it is a placeholder
    return response


def _note(rounds: int, left_out: Sequence[SessionEvent]) -> SessionEvent:
    first, last = left_out[0], left_out[-1]
    text = (
        f"[left out here: {rounds:,} earlier rounds of tool calls of this turn; they are in the log as "
        f"events {first.id} to {last.id}]"
    )
    return replace(first, id="", version=-1, synthetic=True, message=Message.user(text), context={})
