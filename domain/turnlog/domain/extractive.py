"""A summarizer without a model: a digest of what was said, taken from the text word for word.

    Digest of what was said before, extracted word for word:
    Before: …                       what a prior summary said that is no digest
    Left out: 12 earlier requests
    Q: …                            a message of the user, its beginning
    A: …                            the last sentence of the last answer to it
    Tools used: look_up ×3, book ×1
    Last mentioned: HAT123, /srv/data.csv, 42

It is a text of lines that can be read back, so that the next digest goes on from it instead of quoting it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from turnlog.domain.compaction import CompactionReason, Summary, SummaryRequest, require_positive
from turnlog.domain.log import SessionEvent
from turnlog.domain.messages import Message, Role
from turnlog.domain.sentences import identifiers, last_sentence, one_line
from turnlog.domain.summarizing import SHADOW_PROMPT, check_shadow_prompt

_HEADING = "Digest of what was said before, extracted word for word:"
_KEY = re.compile(r'"[^"\\]*+"\s*+:')
_TOOL = re.compile(r"(.*?) ×(\d{1,9})(?:, |$)")
_LEFT_OUT = re.compile(r"Left out: (\d{1,9}) earlier requests")

_MOST_IDENTIFIERS = 40
_MOST_TOOLS = 20
_LONGEST_LINE = 240
_SHORTEST_LINE = 24


@dataclass(frozen=True)
class ExtractiveSummarizer:
    """A deterministic digest: requests in order, last sentences of answers, tools, exact identifiers.

    It asks no model and no network, and takes time linear in what is covered. Its user message is the shadow
    prompt, its assistant message the digest. Both together cost at most `max_tokens`, and always less than
    what they replace; where no digest is that small it declines. When not all fits, the oldest requests but
    the first are left out, then lines become shorter. Identifiers are taken from what user and assistant said
    and from the arguments of calls, not from results.
    """

    max_tokens: int = 500
    shadow_prompt: str = SHADOW_PROMPT

    def __post_init__(self) -> None:
        require_positive("`max_tokens`", self.max_tokens)
        check_shadow_prompt(self.shadow_prompt)

    def summarize(self, request: SummaryRequest) -> Summary:
        """The digest of the covered turns, merged with the prior one."""
        digest = _Digest.of_prior(request.prior_summary)
        digest = digest.followed_by(_Digest.of_events(request.covered))
        limit = min(self.max_tokens, request.replaced_cost() - 1)
        opening = Message.user(self.shadow_prompt)

        def fits(text: str) -> int:
            return limit - request.cost_of(opening, Message.assistant(text))

        text = digest.text_within(limit, fits)
        if text is None:
            detail = f"a digest within {limit:,} tokens is not possible"
            return Summary(declined=CompactionReason.SUMMARY_NOT_SMALLER, detail=detail)
        return Summary((opening, Message.assistant(text)), summarizer=type(self).__name__)

    def __str__(self) -> str:
        return f"digest of at most {self.max_tokens} tokens"


@dataclass(frozen=True)
class _Exchange:
    """A request and the last sentence of its last answer, either may be empty."""

    request: str
    answer: str = ""

    def lines(self, longest: int) -> Iterable[str]:
        if self.request:
            yield f"Q: {one_line(self.request, longest)}"
        if self.answer:
            yield f"A: {one_line(self.answer, longest)}"


@dataclass(frozen=True)
class _Digest:
    """What a digest says, apart from its form."""

    exchanges: tuple[_Exchange, ...] = ()
    tools: Mapping[str, int] = field(default_factory=dict[str, int])
    identifiers: tuple[str, ...] = ()
    before: str = ""
    left_out: int = 0

    @classmethod
    def of_prior(cls, summary: Iterable[SessionEvent]) -> _Digest:
        """What the prior summary says, read back where it is a digest; the same text counts once."""
        texts = dict.fromkeys(event.text or "" for event in summary if event.role is not Role.USER)
        digest = cls()
        for text in texts:
            digest = digest.followed_by(cls.of_text(text))
        return digest

    @classmethod
    def of_text(cls, text: str) -> _Digest:
        """The digest in the form that `text` has; any other text is something said before."""
        heading, *lines = text.split("\n")
        if heading != _HEADING:
            return cls(before=" ".join(text.split()))
        exchanges: list[_Exchange] = []
        tools: dict[str, int] = {}
        named: tuple[str, ...] = ()
        before, left_out = "", 0
        for line in lines:
            label, _, said = line.partition(": ")
            if label == "Q":
                exchanges.append(_Exchange(said))
            elif label == "A" and exchanges and not exchanges[-1].answer:
                exchanges[-1] = _Exchange(exchanges[-1].request, said)
            elif label == "A":
                exchanges.append(_Exchange("", said))
            elif label == "Tools used":
                tools = {found[1]: int(found[2]) for found in _TOOL.finditer(said)}
            elif label == "Last mentioned":
                named = tuple(said.split(", "))
            elif label == "Before":
                before = said
            elif found := _LEFT_OUT.fullmatch(line):
                left_out = int(found[1])
        return cls(tuple(exchanges), tools, named, before, left_out)

    @classmethod
    def of_events(cls, events: Iterable[SessionEvent]) -> _Digest:
        """What is extracted from these events."""
        exchanges: list[_Exchange] = []
        tools: dict[str, int] = {}
        named: dict[str, None] = {}
        for event in events:
            said = event.text or ""
            if event.role is Role.USER and event.branch is None:
                exchanges.append(_Exchange(_request(event)))
            elif event.role is Role.ASSISTANT and event.branch is None:
                sentence = last_sentence(said, _LONGEST_LINE)
                if sentence:
                    asked = exchanges.pop().request if exchanges else ""
                    exchanges.append(_Exchange(asked, sentence))
            for call in event.tool_calls:
                name = " ".join(call.name.replace(",", " ").split()) or "?"
                tools[name] = tools.get(name, 0) + 1
            if event.role in (Role.USER, Role.ASSISTANT):
                for text in (said, *(_KEY.sub(" ", call.arguments) for call in event.tool_calls)):
                    _mention(named, identifiers(text))
        return cls(tuple(exchanges), tools, tuple(named)[-_MOST_IDENTIFIERS:])

    def followed_by(self, later: _Digest) -> _Digest:
        """This digest and what was said behind it, as one."""
        tools = dict(self.tools)
        for name, count in later.tools.items():
            tools[name] = tools.get(name, 0) + count
        named = dict.fromkeys(self.identifiers)
        _mention(named, later.identifiers)
        return _Digest(
            self.exchanges + later.exchanges,
            tools,
            tuple(named)[-_MOST_IDENTIFIERS:],
            " ".join(filter(None, (self.before, later.before))),
            self.left_out + later.left_out,
        )

    def text_within(self, limit: int, left: Callable[[str], int]) -> str | None:
        """The text that fits; None when none does. `left` says how many tokens would be left, or are missing.

        A text is made and counted a bounded number of times, each no longer than could fit at all.
        """
        longest = _LONGEST_LINE
        kept = min(len(self.exchanges), max(1, limit // 4))
        named = min(len(self.identifiers), max(1, limit // 12))
        tools = _MOST_TOOLS
        before = limit * 2
        while True:
            text = self._text(kept, named, tools, longest, before)
            missing = -left(text)
            if missing <= 0:
                return text
            if kept > 1:
                kept = max(1, min(kept - 1, kept * limit // (limit + missing)))
            elif before > _LONGEST_LINE and len(self.before) > _LONGEST_LINE:
                before //= 2
            elif longest > _SHORTEST_LINE:
                longest, named, tools, before = longest // 2, named // 2, tools // 2, before // 2
            else:
                return None

    def _text(self, kept: int, named: int, tools: int, longest: int, before: int) -> str:
        exchanges, left_out = self._newest(kept)
        most_used = sorted(self.tools.items(), key=lambda tool: -tool[1])[:tools]
        used = ", ".join(f"{one_line(name, 60)} ×{count}" for name, count in most_used)
        lines = [_HEADING]
        lines += [f"Before: {one_line(self.before, max(1, before))}"] if self.before and before > 3 else []
        lines += [f"Left out: {left_out} earlier requests"] if left_out else []
        for exchange in exchanges:
            lines += exchange.lines(longest)
        lines += [f"Tools used: {used}"] if used else []
        lines += [f"Last mentioned: {', '.join(self.identifiers[-named:])}"] if named else []
        return "\n".join(lines)

    def _newest(self, kept: int) -> tuple[tuple[_Exchange, ...], int]:
        """The first exchange, the newest ones, and how many requests are left out."""
        count = len(self.exchanges)
        if kept >= count:
            return self.exchanges, self.left_out
        first = self.exchanges[:1] if kept > 1 else ()
        return first + self.exchanges[count - kept + len(first) :], self.left_out + count - kept


def _request(event: SessionEvent) -> str:
    """What the user asked, on one line; a message without text names its parts."""
    line = one_line(event.text or "", _LONGEST_LINE)
    parts = event.message.parts if event.message else ()
    return line or f"[{', '.join(part.type for part in parts) or 'nothing'}]"


def _mention(named: dict[str, None], mentioned: Iterable[str]) -> None:
    """Put these to the end, as what was mentioned last."""
    for name in mentioned:
        named.pop(name, None)
        named[name] = None
