"""Sessions with every kind of event, for audits of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from turnlog.application.service import SessionService
from turnlog.domain.compaction import CompactionResult
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.summarizing import PromptSummarizer
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

BEGIN = datetime(2031, 5, 1, 8, tzinfo=UTC)
SUMMARIZED = WindowCompactionStrategy(
    CompactionWindow.last_turns(1), summarizer=PromptSummarizer(lambda _: "They talked about parcels.")
)
PLAIN = WindowCompactionStrategy(CompactionWindow.last_turns(1))


class WordCount:
    """Costs one token for each word."""

    def estimate(self, message: Message) -> int:
        """The words of the message."""
        return len((message.text or "").split())


def say_turns(sessions: SessionService, sid: str, first: int, count: int) -> None:
    """Turns `u0`, `a0`, `u1`, `a1` …"""
    for number in range(first, first + count):
        sessions.append_message(sid, Message.user(f"question {number}"), event_id=f"u{number}")
        sessions.append_message(sid, Message.assistant(f"answer {number}"), event_id=f"a{number}")


def compact(sessions: SessionService, sid: str, *, summarized: bool = True) -> CompactionResult:
    """Cover all but the newest turn."""
    return sessions.compact(sid, None, SUMMARIZED if summarized else PLAIN)


def fill(sessions: SessionService) -> None:
    """A session with every kind of event, a small one, one that was erased, one that was deleted and kept."""
    rich = sessions.create("rich", metadata={"title": "Parcels"}).id
    sessions.append_message(rich, Message.system("Be kind."), event_id="s0")
    say_turns(sessions, rich, 0, 3)
    compact(sessions, rich)
    sessions.append_event(rich, "ACME.AUDIT", {"ok": True})
    call = ToolCallPart(id="c1", name="find", arguments="{}", awaiting=True)
    sessions.append_message(rich, Message.assistant([call]), event_id="k1", branch="find")
    sessions.abandon(rich, "k1", "c1")
    sessions.update_metadata(rich, {"title": "Malmö"})
    sessions.extend(rich, BEGIN + timedelta(days=1))
    hold = sessions.hold(rich, "case 7", by="ada")
    sessions.release(rich, hold, by="bob")
    say_turns(sessions, rich, 3, 3)
    compact(sessions, rich)
    say_turns(sessions, rich, 6, 1)
    small = sessions.create("small").id
    say_turns(sessions, small, 0, 2)
    gone = sessions.create("gone").id
    say_turns(sessions, gone, 0, 2)
    sessions.delete(gone)
    kept = sessions.create("kept").id
    say_turns(sessions, kept, 0, 1)
    sessions.delete(kept, erase=False)
