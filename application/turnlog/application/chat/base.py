"""What the sync chat and the one for asyncio have in common: settings, and how turns begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from turnlog.application.async_service import AnySessionService, sync_service
from turnlog.application.chat.engine import TurnEngine
from turnlog.application.chat.keeping import MarkKeeper
from turnlog.application.chat.model import Rendering
from turnlog.application.chat.model_check import check_model
from turnlog.application.chat.progress import Opening
from turnlog.application.chat.recording import CallRecorder, NoRecorder
from turnlog.application.chat.settings import ChatSettings, SystemPlacement
from turnlog.application.chat.tools import DescribedTool, Tool, ToolSet, result_content
from turnlog.application.compacting import OnRace
from turnlog.application.context import event_context
from turnlog.application.service import SessionService
from turnlog.application.turns import CallReference
from turnlog.domain.compaction import CompactionStrategy, CompactionTrigger
from turnlog.domain.errors import InvalidMessageError, InvalidSettingError, shown
from turnlog.domain.filters import EventFilter, MessageFilter
from turnlog.domain.guards import require_kind
from turnlog.domain.ids import check_branch, check_id
from turnlog.domain.messages import Message, Role, TextPart, ToolCallResponsePart

AnyTool: TypeAlias = Callable[..., object] | DescribedTool | Tool
"""A function, a tool with a schema of its own, or what `Tool.of` made."""

ModelT = TypeVar("ModelT", bound=Rendering)


class ChatBase(Generic[ModelT]):
    """Settings of a chat, and the turns that it begins."""

    _IS_ASYNC: ClassVar[bool] = False

    def __init__(
        self,
        sessions: AnySessionService,
        model: ModelT,
        *,
        tools: Sequence[AnyTool] = (),
        trigger: CompactionTrigger | None = None,
        strategy: CompactionStrategy | None = None,
        on_race: OnRace = OnRace.REBASE,
        filter: EventFilter | None = None,  # noqa: A002 - the vocabulary's word
        store: MessageFilter | None = None,
        instructions: str | None = None,
        system: SystemPlacement = "first",
        default_principal: str = "default",
        max_rounds: int = 50,
        tool_time_limit: float | None = 60.0,
        max_message_tokens: int | None = None,
        max_request_tokens: int | None = None,
        keep_tool_results: int = 5,
        max_output_tokens: int | None = None,
        options: Mapping[str, Any] | None = None,
        cache: bool = False,
        lease: timedelta = timedelta(minutes=1),
        recorder: CallRecorder | None = None,
    ) -> None:
        self._sessions = sync_service(sessions)
        check_model(model, is_async=self._IS_ASYNC)
        if options is not None:
            require_kind("`options`", options, Mapping, "a mapping of the provider's parameters")
        self._model = model
        self._settings = ChatSettings(
            tools=ToolSet(tools),
            trigger=trigger,
            strategy=strategy,
            on_race=on_race,
            filter=filter,
            store=store,
            instructions=instructions,
            system=system,
            default_principal=default_principal,
            max_rounds=max_rounds,
            tool_time_limit=tool_time_limit,
            max_message_tokens=max_message_tokens,
            max_request_tokens=max_request_tokens,
            keep_tool_results=keep_tool_results,
            max_output_tokens=max_output_tokens,
            options=dict(options or {}),
            cache=cache,
            lease=lease,
            recorder=recorder or NoRecorder(),
        )
        self._keeper = MarkKeeper(lease)

    def _said(
        self,
        session_id: str,
        text_or_message: str | Message,
        *,
        principal: str | None,
        idempotency_key: str | None,
        filter: EventFilter | None,  # noqa: A002 - the vocabulary's word
        system: str | None,
        branch: str | None,
        wait: float | None,
    ) -> Opening:
        """A turn that a message of the user begins."""
        message = Message.user(text_or_message) if isinstance(text_or_message, str) else text_or_message
        if not isinstance(message, Message) or message.role is not Role.USER:  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
            raise InvalidSettingError(
                f"A turn begins with a text or with Message.user(…), not with {shown(text_or_message)}."
            )
        if all(isinstance(part, TextPart) and not part.content.strip() for part in message.parts):
            raise InvalidMessageError("The message of the user says nothing: give it a text or a file.")
        if idempotency_key is not None:
            check_id("Idempotency key", idempotency_key)
        return Opening(
            session_id=session_id,
            message=message,
            principal=principal,
            key=idempotency_key,
            filter=filter,
            system=system,
            branch=None if branch is None else check_branch(branch),
            wait=wait,
        )

    @staticmethod
    def _resuming(
        session_id: str,
        *,
        principal: str | None,
        filter: EventFilter | None,  # noqa: A002 - the vocabulary's word
        system: str | None,
        branch: str | None,
        wait: float | None,
    ) -> Opening:
        """A turn that goes on with the newest question."""
        return Opening(
            session_id=session_id,
            resumes=True,
            principal=principal,
            filter=filter,
            system=system,
            branch=None if branch is None else check_branch(branch),
            wait=wait,
        )

    @staticmethod
    def _settling(
        session_id: str,
        event_id: str,
        call_id: str,
        *,
        result: Message | None = None,
        runs: bool = False,
        principal: str | None,
        wait: float | None,
    ) -> Opening:
        """A turn that goes on with what became of an awaited call."""
        reference = CallReference(check_id("Event id", event_id), call_id)
        return Opening(
            session_id=session_id,
            settles=reference,
            result=result,
            runs=runs,
            principal=principal,
            wait=wait,
        )

    def _engine(
        self, opening: Opening, tools: Sequence[AnyTool] | None, *, stream: bool
    ) -> tuple[SessionService, TurnEngine]:
        """The rules of the turn, and the service of whoever it is for."""
        sessions = self._sessions
        if opening.principal is not None:
            sessions = sessions.scoped_to(opening.principal)
        settings = self._settings if tools is None else replace(self._settings, tools=ToolSet(tools))
        return sessions, TurnEngine(settings, self._model, opening, sessions.count_tokens, stream=stream)


def acting(by: str | None) -> AbstractContextManager[None]:
    """Names who settles a call as the `actor` of what is recorded; nobody further when None."""
    if by is None:
        return nullcontext()
    if not isinstance(by, str) or not by.strip():  # pyright: ignore[reportUnnecessaryIsInstance] # callers may be untyped
        raise InvalidSettingError(f"`by` says who settles the call, as in by='ada', not {shown(by)}.")
    return event_context(actor=by)


def denial(call_id: str, reason: str) -> Message:
    """What the model is told of a call that somebody denied."""
    said = "The call was denied and not made."
    if reason.strip():
        said = f"{said} Reason: {reason}"
    part = {"id": call_id, "response": said, "is_error": True}
    return Message.tool([ToolCallResponsePart.model_validate(part)])


def result_message(call_id: str, result: object) -> Message:
    """The result of an awaited call as a message: what a tool may return, or a message of results."""
    if isinstance(result, Message):
        return result
    part = {"id": call_id, "response": result_content(result)}
    return Message.tool([ToolCallResponsePart.model_validate(part)])
