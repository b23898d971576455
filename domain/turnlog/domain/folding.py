"""Folding: a summary of what is larger than the summarizer's own window, made in several prompts.

Each prompt carries the summary so far and as many whole turns as fit. A turn that does not fit alone is given
in pieces of text. Nothing moves on before an answer is folded in, so a prompt that failed can be made
smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.messages import Message
from turnlog.domain.summarizing import EventFormatter, SummaryPrompt, prior_texts, summary_prompt

_MARGIN = 0.9
"""Of the window this much is used: the summarizer may count otherwise than the estimator."""

_MIN_ROOM = 16
"""Tokens below which there is no room for a transcript."""

_MAX_SHRINKS = 6


class Folding:
    """The prompts of one summary, one after the other. Figures are tokens by the request's own count."""

    def __init__(
        self,
        request: SummaryRequest,
        *,
        instructions: str,
        format_event: EventFormatter,
        overlap_size: int,
        answer_tokens: int,
        window: int | None,
    ) -> None:
        self._request = request
        self._instructions = instructions
        self._lines = [format_event(event) for event in request.covered]
        self._overlap = [format_event(event) for event in request.preserved[:overlap_size]]
        self._overlap_size = overlap_size
        self._answer_tokens = answer_tokens
        self._window = window
        self._costs: dict[int, int] = {}
        self._so_far: Sequence[str] = prior_texts(request)
        self._at = 0
        self._rest = ""
        self._next_at = 0
        self._next_rest = ""
        self._asked = 0
        self._shrinks = 0

    @property
    def is_done(self) -> bool:
        """Whether all that is covered has been folded in."""
        return self._at == len(self._lines)

    @property
    def sizes(self) -> str:
        """What does not fit into what, in words."""
        window = "unknown" if self._window is None else f"{self._window:,} tokens"
        return (
            f"what would be covered costs {self._request.replaced_cost():,} tokens; the summarizer's window "
            f"is {window}, of which {self._answer_tokens:,} are for its answer"
        )

    def next_prompt(self) -> SummaryPrompt | None:
        """The next prompt; None when not even a piece of text fits."""
        room = self._room()
        if room is not None and room < _MIN_ROOM:
            return None
        transcript = self._whole_turns(room) if not self._rest else []
        if not transcript:
            piece = self._piece(self._rest or "\n".join(self._lines[self._at : self._stop_behind()]), room)
            if not piece:
                return None
            transcript = [piece]
        prompt = self._prompt(transcript, self._quoted(transcript, room))
        self._asked = self._cost_of(prompt)
        return prompt

    def fold(self, summary: str) -> int | None:
        """Go on from this answer; how many events the summary stands for, None within a turn."""
        self._so_far = (summary,)
        self._at, self._rest = self._next_at, self._next_rest
        return None if self._rest else self._at

    def shrink(self, limit: int | None, sent: int | None) -> bool:
        """Take less next time, after the last prompt was too large; False when that was tried enough.

        `limit` and `sent` are what the server says, in its own count.
        """
        asked = self._asked + self._answer_tokens
        window = asked * 3 // 4
        if limit is not None:
            window = min(window, limit * self._asked // sent if sent else limit)
        self._shrinks += 1
        self._window = window
        return self._shrinks <= _MAX_SHRINKS and window > 0

    def _room(self) -> int | None:
        """What is left for a transcript."""
        if self._window is None:
            return None
        return int(self._window * _MARGIN) - self._answer_tokens - self._cost_of(self._prompt([""], []))

    def _whole_turns(self, room: int | None) -> list[str]:
        """As many whole turns as fit; none when the next one does not."""
        end = self._at
        for stop in self._request.stops:
            if stop > self._at:
                cost = sum(map(self._cost, range(end, stop))) if room is not None else 0
                if room is not None and cost > room:
                    break
                room = None if room is None else room - cost
                end = stop
        self._next_at, self._next_rest = end, ""
        return self._lines[self._at : end]

    def _stop_behind(self) -> int:
        return next(stop for stop in self._request.stops if stop > self._at)

    def _piece(self, text: str, room: int | None) -> str:
        """The beginning of the text that fits; `fold` goes on behind it."""
        size = len(text) if room is None else _fitting(text, room, self._text_cost)
        self._next_rest = text[size:]
        self._next_at = self._at if self._next_rest else self._stop_behind()
        return text[:size]

    def _quoted(self, transcript: Sequence[str], room: int | None) -> list[str]:
        """What follows whole turns, where it is small enough to be quoted."""
        if self._next_rest:
            return []
        quoted = [*self._lines[self._next_at :][: self._overlap_size], *self._overlap][: self._overlap_size]
        if room is None:
            return quoted
        left = room - sum(map(self._text_cost, transcript))
        return quoted if sum(map(self._text_cost, quoted)) <= left else []

    def _prompt(self, transcript: Sequence[str], overlap: Sequence[str]) -> SummaryPrompt:
        return summary_prompt(self._instructions, prior=self._so_far, transcript=transcript, overlap=overlap)

    def _cost(self, index: int) -> int:
        if index not in self._costs:
            self._costs[index] = self._text_cost(self._lines[index])
        return self._costs[index]

    def _text_cost(self, text: str) -> int:
        return self._request.cost_of(Message.user(text))

    def _cost_of(self, prompt: SummaryPrompt) -> int:
        return self._request.cost_of(Message.system(prompt.system), Message.user(prompt.user))


def _fitting(text: str, room: int, cost_of: Callable[[str], int]) -> int:
    """How much of the text fits, within a few tries: to the end of a line or a word where there is one.

    Only so much of the text is counted as could fit, so that pieces of a long text cost what the text does.
    """
    size = min(len(text), room * 4)
    for _ in range(12):
        cost = cost_of(text[:size])
        if cost <= room and (size == len(text) or cost * 2 > room):
            break
        shorter = min(size - 1, int(size * room / max(1, cost) * 0.95))
        size = shorter if cost > room else min(len(text), size * 2)
    else:
        return size if size > 0 and cost_of(text[:size]) <= room else 0
    if size == len(text):
        return size
    end = max(text.rfind("\n", size * 9 // 10, size), text.rfind(" ", size * 9 // 10, size))
    return end + 1 if end > 0 else size
