"""The commands that ask a model: chat, summarize."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final
from uuid import uuid4

from rich.text import Text

from turnlog.application import SessionService
from turnlog.application.audit import PromptRecorder
from turnlog.application.chat import (
    Compacted,
    FinishReason,
    MessageStored,
    ReasoningDelta,
    SessionChat,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    Turn,
    TurnFinished,
    Usage,
)
from turnlog.application.chat.engine import HOW_TO_GO_ON
from turnlog.domain.compaction import CompactionResult, SummaryRequest
from turnlog.domain.errors import TurnlogError
from turnlog.domain.guarding import GuardedCompactionStrategy
from turnlog.domain.messages import ReasoningPart, Role, ToolCallPart, ToolCallResponsePart
from turnlog.domain.rendering import response_text
from turnlog.domain.steps import summary_of
from turnlog.domain.triggers import TokenCountTrigger
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.asking import Asked
from turnlog.infrastructure.cli.failures import CommandUsageError, NotSummarizedError, status_of, told
from turnlog.infrastructure.cli.options import SummarizerName
from turnlog.infrastructure.cli.output import (
    console,
    note,
    one_line,
    one_line_of,
    say,
    several,
    visible,
    write_json,
)
from turnlog.infrastructure.cli.settings import Settings, Status
from turnlog.infrastructure.cli.tools import tools_of

_FULL: Final = 0.75
"""The part of the window that may be used before a chat is compacted."""
_KEPT: Final = 0.4
"""The part of the window that the newest turns may use after that."""
_TURNS_KEPT: Final = 4
"""Turns that stay when the window is not known, and the server says that it is full."""
_PROMPT: Final = "you> "


@dataclass(frozen=True)
class Talk:
    """What `chat` was asked for."""

    asked: Asked
    messages: tuple[str, ...] = ()
    resumes: bool = False
    system: str | None = None
    tools: tuple[str, ...] = ()
    summarizer: SummarizerName = SummarizerName.FALLBACK
    principal: str | None = None
    max_output: int | None = None
    thoughts: bool = False


def talk(settings: Settings, given: str | None, wanted: Talk) -> int:
    """Say what the options, a pipe or the person at the terminal says, turn by turn; or ask again."""
    if wanted.resumes:
        return _ask_again(settings, given, wanted)
    with database.changing(settings.database, create=True) as service:
        if any(not message.strip() for message in wanted.messages):
            raise CommandUsageError("An empty message says nothing: give --message a text.")
        chat = _chat(service, wanted)
        is_dialogue = not wanted.messages and sys.stdin.isatty() and not settings.json
        session_id = _session_id(service, given, quiet=is_dialogue)
        screen = _Screen(wanted.asked.chat_model().model, settings.json, wanted.thoughts)
        if is_dialogue:
            screen.greet(session_id, service)
        for message in _said_by(wanted, is_dialogue):
            try:
                screen.show(_turn(chat, session_id, message, wanted, screen), session_id)
            except KeyboardInterrupt:
                screen.line("(stopped; what came is stored)")
                if not is_dialogue:
                    raise
            except TurnlogError as error:
                screen.end_line()
                _name_command(error, session_id)
                if not is_dialogue or status_of(error) is None:
                    raise
                say(told(error))
        if is_dialogue:
            screen.line(f"Go on with: turnlog chat {one_line(session_id)}")
    return Status.DONE


def _ask_again(settings: Settings, given: str | None, wanted: Talk) -> int:
    """Go on with the newest question, which is not said again; status 1 when it has its answer."""
    if given is None or wanted.messages:
        raise CommandUsageError("--resume says nothing new: name the session, and give no --message.")
    with database.changing(settings.database) as service:
        session_id = database.session_id(service, given)
        screen = _Screen(wanted.asked.chat_model().model, settings.json, wanted.thoughts)
        try:
            turn = _chat(service, wanted).resume(session_id, principal=wanted.principal)
        except TurnlogError as error:
            _name_command(error, session_id)
            raise
        screen.follow(_as_events(turn))
        if turn.is_repeat:
            screen.line("(it was answered before; no model was asked)")
        screen.show(turn, session_id)
    return Status.FOUND_OR_NOTHING_TO_DO if turn.is_repeat else Status.DONE


def _as_events(turn: Turn) -> Iterator[object]:
    """What a turn would have told as it happened, as far as its messages tell."""
    calls: dict[str | None, ToolCallPart] = {}
    for message in turn.messages:
        if message.role is Role.ASSISTANT and message.text:
            yield TextDelta(message.text)
        for part in message.parts:
            match part:
                case ReasoningPart(content=str(thought)):
                    yield ReasoningDelta(thought)
                case ToolCallPart():
                    calls[part.id] = part
                    yield ToolCallStarted(part)
                case ToolCallResponsePart() if part.id in calls:
                    yield ToolCallFinished(calls[part.id], part)
                case _:
                    pass
    if turn.compaction is not None:
        yield Compacted(turn.compaction)
    yield TurnFinished(turn)


def _name_command(error: TurnlogError, session_id: str) -> None:
    """Say how to go on in the words of the command line, where the error says how programs do."""
    notes = getattr(error, "__notes__", [])
    if HOW_TO_GO_ON in notes:
        again = f"turnlog chat {shlex.quote(session_id)} --resume"
        notes[notes.index(HOW_TO_GO_ON)] = f"What was said is stored; to ask again: {again}"


def summarize_session(
    settings: Settings, given: str, asked: Asked, *, summarizer: SummarizerName, branch: str | None
) -> int:
    """Print a summary of what the model is told; `NotSummarizedError` when none came."""
    writer = asked.summarizer(summarizer)
    if writer is None:
        raise CommandUsageError("--summarizer none summarizes nothing: name another.")
    with database.reading(settings.database) as service:
        session_id = database.session_id(service, given)
        said = [e for e in service.view(session_id).told_events(branch) if not e.is_stored_system]
        request = SummaryRequest(
            prior_summary=tuple(event for event in said if event.synthetic),
            covered=tuple(event for event in said if not event.synthetic),
            preserved=(),
            tokens=service.count_tokens,
            session_id=session_id,
            branch=branch,
            message_tokens=service.count_tokens,
        )
        if not said:
            raise NotSummarizedError(session_id, "it holds no messages")
        summary = summary_of(writer.summarize(request))
    if not summary.messages:
        raise NotSummarizedError(session_id, summary.detail or str(summary.declined))
    text = summary.messages[-1].text or ""
    if settings.json:
        found = {"session": session_id, "summary": text, "by": summary.summarizer, "model": summary.model}
        write_json({**found, "usage": dict(summary.usage) if summary.usage else None})
    else:
        print(visible(text))
        if summary.detail:
            note(summary.detail)
    return Status.DONE


def _chat(service: SessionService, wanted: Talk) -> SessionChat:
    window = wanted.asked.window
    summarizer = wanted.asked.summarizer(wanted.summarizer)
    keeps = CompactionWindow.token_budget(int(window * _KEPT)) if window else None
    strategy = WindowCompactionStrategy(keeps or CompactionWindow.last_turns(_TURNS_KEPT), summarizer)
    return SessionChat(
        service,
        wanted.asked.chat_model(),
        tools=tools_of(wanted.tools),
        trigger=TokenCountTrigger(int(window * _FULL)) if window else None,
        strategy=GuardedCompactionStrategy(strategy),
        instructions=wanted.system,
        max_request_tokens=window - (wanted.max_output or 0) if window else None,
        max_output_tokens=wanted.max_output,
        options=wanted.asked.parameters(),
        recorder=PromptRecorder(service),
    )


def _session_id(service: SessionService, given: str | None, *, quiet: bool) -> str:
    """The session that is meant, by its whole id; an id that none has is that of a new one."""
    if given is None:
        made = str(uuid4())
        if not quiet:  # a dialogue begins with it
            note(f"a new session: {made}")
        return made
    return database.session_id(service, given) if given == database.LAST else given


def _said_by(wanted: Talk, is_dialogue: bool) -> Iterator[str]:
    if wanted.messages:
        yield from wanted.messages
    elif is_dialogue:
        yield from _typed()
    else:
        said = sys.stdin.read()
        if not said.strip():
            raise CommandUsageError("Nothing was said: give --message TEXT, or a text through a pipe.")
        yield said.removesuffix("\n")


def _typed() -> Generator[str]:
    """What the person types, line by line, until the end of the input. Ctrl-C discards a line."""
    with suppress(ImportError):
        import_module("readline")  # lets `input` edit the line and recall earlier ones
    while True:
        try:
            line = input(_PROMPT)
        except KeyboardInterrupt:
            print("  (Ctrl-D ends the chat)")
            continue
        except EOFError:
            print()
            return
        if line.strip():
            yield line


def _turn(chat: SessionChat, session_id: str, message: str, wanted: Talk, screen: _Screen) -> Turn:
    with chat.stream(session_id, message, principal=wanted.principal) as turn:
        screen.follow(turn)
    return turn.turn


class _Screen:
    """Shows a turn as it happens; with JSON, one object on one line when it is over."""

    def __init__(self, model: str, as_json: bool, thoughts: bool) -> None:
        self._out = console()
        self._model = model
        self._json = as_json
        self._thoughts = thoughts
        self._is_open = False
        self._is_thinking = False
        self._held_back = ""

    def greet(self, session_id: str, service: SessionService) -> None:
        """Say whom one talks to, and how it ends."""
        told = len(service.view(session_id).told()) if service.find(session_id) else 0
        about = f"it is told {several(told, 'message')}" if told else "new"
        self.line(f"{one_line(self._model)} · session {one_line(session_id)}, {about}")
        self.line("Ctrl-C stops an answer, Ctrl-D ends the chat. Every message is stored as it happens.")

    def follow(self, events: Iterable[object]) -> None:
        """Show what happens in a turn."""
        for event in events:
            if self._json:
                continue
            match event:
                case TextDelta(text):
                    self._say(text, thinking=False)
                case ReasoningDelta(text):
                    if self._thoughts:
                        self._say(text, thinking=True)
                case ToolCallStarted(call):
                    self._call(call)
                case ToolCallFinished(call, result):
                    self._result(call, result)
                case Compacted(result):
                    self.line(_compaction_text(result))
                case MessageStored() | TurnFinished():
                    self.end_line()
                case _:
                    pass

    def show(self, turn: Turn, session_id: str) -> None:
        """Say how a turn ended."""
        if self._json:
            print(json.dumps(_turn_data(turn, session_id), ensure_ascii=True), flush=True)
            return
        for call in turn.awaiting:
            self.line(f"Call {one_line(call.call_id)} of event {one_line(call.event_id)} awaits its result.")
        if turn.finish_reason not in (FinishReason.STOP, FinishReason.TOOL_CALL, None):
            self.line(f"(the answer ended early: {turn.finish_reason})")
        if turn.compaction_error:
            self.line(f"(not compacted: {one_line(str(turn.compaction_error))})")
        if turn.usage and (told := _usage_text(turn.usage)):
            self.line(told)

    def line(self, text: str) -> None:
        """A line of ours."""
        if not self._json:
            self.end_line()
            self._out.print(Text(visible(text), "dim"), soft_wrap=True)

    def end_line(self) -> None:
        """End the line of an answer."""
        if self._is_open:
            print(flush=True)
        self._is_open, self._is_thinking, self._held_back = False, False, ""

    def _say(self, text: str, *, thinking: bool) -> None:
        if self._is_open and thinking is not self._is_thinking:
            self.end_line()
        if not self._is_open:
            self._out.print(Text(f"{one_line(self._model)}> ", "green"), end="")
        self._is_open, self._is_thinking = True, thinking
        text = self._held_back + text
        self._held_back = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r")
        self._out.print(Text(visible(text), "dim italic" if thinking else ""), end="", soft_wrap=True)
        sys.stdout.flush()

    def _call(self, call: ToolCallPart) -> None:
        self.line(f"→ {one_line(call.name)}({one_line_of(call.arguments, 60)})")

    def _result(self, call: ToolCallPart, result: ToolCallResponsePart | None) -> None:
        text = "comes later" if result is None else one_line_of(response_text(result), 60)
        self.line(f"← {one_line(call.name)}: {text}")


def _compaction_text(result: CompactionResult) -> str:
    if result.is_unchanged:
        return f"── not compacted: {result.reason}"
    into = " became a summary" if result.summary else " left the view"
    return (
        f"── compacted: {several(len(result.covered_events), 'message')}{into}; "
        f"{result.tokens_before or 0:,} → {result.tokens_after or 0:,} tokens"
    )


def _usage_text(usage: Usage) -> str:
    cached = f" ({usage.cache_read_input_tokens:,} cached)" if usage.cache_read_input_tokens else ""
    into = "" if usage.input_tokens is None else f"{usage.input_tokens:,} tokens in{cached}"
    out = "" if usage.output_tokens is None else f"{usage.output_tokens:,}{'' if into else ' tokens'} out"
    return ", ".join(filter(None, (into, out)))


def _turn_data(turn: Turn, session_id: str) -> dict[str, Any]:
    result = turn.compaction
    return {
        "session": session_id,
        "text": turn.text,
        "finish_reason": turn.finish_reason,
        "usage": turn.usage.to_dict() if turn.usage else None,
        "events": [event.id for event in turn.events],
        "awaiting": [{"event": call.event_id, "call": call.call_id} for call in turn.awaiting],
        "compaction": None if result is None else str(result.reason),
    }
