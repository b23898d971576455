"""Scripted models as the tests of summarizers ask them."""

from __future__ import annotations

from tests.support import scripted_chat
from tests.support.scripted_chat import Line

from turnlog.application.chat import ChatReply, ChatRequest, FinishReason, Usage
from turnlog.domain import Message, event_text


def reply(
    content: str | Message, finish: FinishReason = FinishReason.STOP, usage: Usage | None = None
) -> ChatReply:
    """A reply with this text or message."""
    message = Message.assistant(content) if isinstance(content, str) else content
    return ChatReply(message, finish, usage=usage, model="scripted-1")


class _Asked(scripted_chat.Script):
    def __init__(self, *answers: Line) -> None:
        super().__init__(answers or ("a recap",))

    @property
    def requests(self) -> list[ChatRequest]:
        """What was asked."""
        return self.asked

    @property
    def prompts(self) -> list[str]:
        """The user text of each request."""
        return [event_text(request.conversation[0]).removeprefix("User: ") for request in self.asked]


class ScriptedModel(_Asked, scripted_chat.ScriptedModel):
    """A `ChatModel` that gives these answers in order, the last one again and again."""


class AsyncScriptedModel(_Asked, scripted_chat.AsyncScriptedModel):
    """An `AsyncChatModel` that does."""
