"""Estimates corrected by what a provider counted, as a ratio per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from turnlog.domain.compaction import CompactionRequest, CompactionTrigger, name_of
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role
from turnlog.domain.view import View

LEAST: Final = 0.5
MOST: Final = 2.0
"""Bounds of a ratio: a provider that counts otherwise still is a correction, never the measure."""

_WEIGHT: Final = 0.3
"""How much the newest answer counts against those before it."""

ESTIMATE: Final = "estimate"
"""Where the metadata of an answer keep what its request was estimated at."""


@dataclass(frozen=True)
class Estimate:
    """What a request was estimated at (tokens), for which model, and how many events of the view it held."""

    tokens: int
    events: int
    model: str

    def to_dict(self) -> dict[str, Any]:
        """As it is stored with the answer."""
        return {"tokens": self.tokens, "events": self.events, "model": self.model}


def ratio_of(events: Sequence[SessionEvent], model: str) -> float:
    """Counted by the provider : estimated, smoothed over the answers among these events of a view.

    An answer counts when its request was what stands in front of it now: a boundary since then, or a request
    that was not the view, leaves it out. 1 without any. It depends on the log alone, so it is the same in
    every process.
    """
    found: float | None = None
    newest = -1
    for place, event in enumerate(events):
        if event.version > newest and event.role is Role.ASSISTANT:
            sample = _sample(event.message, place, model)
            if sample is not None:
                found = sample if found is None else found + _WEIGHT * (sample - found)
        newest = max(newest, event.version)
    return 1.0 if found is None else found


def _sample(message: Message | None, place: int, model: str) -> float | None:
    metadata = (message.metadata if message else None) or {}
    estimate, usage = metadata.get(ESTIMATE), metadata.get("usage")
    if not isinstance(estimate, Mapping) or not isinstance(usage, Mapping):
        return None
    estimate, usage = cast("Mapping[str, Any]", estimate), cast("Mapping[str, Any]", usage)
    if (estimate.get("events"), estimate.get("model")) != (place, model):
        return None
    counted, estimated = usage.get("input_tokens"), estimate.get("tokens")
    if not isinstance(counted, int) or not isinstance(estimated, int) or counted < 1 or estimated < 1:
        return None
    return min(max(counted / estimated, LEAST), MOST)


@dataclass(frozen=True)
class CalibratedTrigger:
    """A trigger that is asked about the view and what goes with it in the next request.

    `beside` stands for the schemas of tools, instructions that are not in the log, and the message that is
    about to be stored: they cost tokens and are no turns of the view.
    """

    trigger: CompactionTrigger
    model: str
    beside: tuple[SessionEvent, ...] = ()

    def __call__(self, request: CompactionRequest, /) -> bool:
        """Whether the trigger fires."""
        told = request.events if request.told is None else request.told
        ratio = ratio_of(told, self.model)
        tokens = request.tokens

        def calibrated(event: SessionEvent) -> int:
            return round(tokens(event) * ratio)

        return self.trigger(
            replace(
                request,
                view=View((*request.events, *self.beside), request.view.version),
                told=(*told, *self.beside),
                tokens=tokens if ratio == 1.0 else calibrated,
            )
        )

    def __str__(self) -> str:
        return name_of(self.trigger)
