"""What can go wrong when a model is called. No message holds a key or what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.domain.errors import TurnlogError, shown

if TYPE_CHECKING:
    from turnlog.application.chat.model import ChatReply


class ModelError(TurnlogError):
    """A call of a model failed."""


class MissingKeyError(ModelError):
    """A provider that needs a key has none."""


class ModelUnavailableError(ModelError):
    """The server cannot be reached, or said after all retries that it cannot answer now.

    `retry_after` are the seconds that it asked to wait, None where it did not say.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelTimeoutError(ModelError):
    """The server did not answer within the time limit."""


class ModelRejectedError(ModelError):
    """The server refused the request: a wrong key, an unknown model, a malformed request.

    `status` is that of HTTP; `code` is the provider's own, None where it gives none.
    """

    def __init__(self, message: str, *, status: int, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class ContextOverflowError(ModelError):
    """The request is larger than the model's context window. Figures are tokens, None where not said."""

    def __init__(self, limit: int | None = None, sent: int | None = None, *, detail: str = "") -> None:
        figures = [f"{sent:,} tokens were sent"] if sent else []
        figures += [f"it holds {limit:,}"] if limit else []
        said = f" ({', '.join(figures)})" if figures else ""
        hint = f" The server says: {detail}" if detail else ""
        super().__init__(
            f"The request is larger than the model's context window{said}. Compact the session, or shorten "
            f"what is sent.{hint}"
        )
        self.limit = limit
        self.sent = sent


class InvalidReplyError(ModelError):
    """What the server answered is no answer: an error object with status 200, HTML, no JSON, no choices."""


class StreamInterruptedError(ModelError):
    """An answer broke off after pieces of it were handed out. `reply` is what came; nothing was retried."""

    def __init__(self, message: str, reply: ChatReply) -> None:
        super().__init__(message)
        self.reply = reply


class ChatError(TurnlogError):
    """A turn cannot go on."""


class MalformedArgumentsError(ChatError):
    """A model wrote arguments that the tool cannot be called with. The model is told so."""

    def __init__(self, reasons: str) -> None:
        super().__init__(f"The arguments are malformed: {reasons}. Call the tool again with a JSON object.")


class MessageTooLargeError(ChatError):
    """A message costs more than one message may; it was not stored. Figures are tokens."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"The message costs {tokens:,} tokens, one message may cost {limit:,}. Nothing was stored: "
            "shorten it, or raise max_message_tokens."
        )
        self.tokens = tokens
        self.limit = limit


class TooManyRoundsError(ChatError):
    """The model asked for tools again and again. What was said is stored; the last calls were not run."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The model asked for tools in more than {limit} rounds of one turn. What was said is stored: "
            "send another message to go on, or raise max_rounds."
        )
        self.limit = limit


class TurnTakenOverError(ChatError):
    """The turn's mark expired and another turn began. What this turn had is stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            "This turn took longer than its mark was renewed, and another turn began meanwhile. What it had "
            "is stored. Check the clock and the lease of the chat."
        )
        self.session_id = session_id


class NothingToResumeError(ChatError):
    """No user has said anything in the session, or on the branch, so no turn can go on."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {shown(session_id)} holds no message of a user to go on from: `send` one.")
        self.session_id = session_id


class TurnUnfinishedError(ChatError):
    """The result of a streamed turn was asked for before its end."""

    def __init__(self) -> None:
        super().__init__(
            "The turn is not over: iterate over the stream to its end, or leave its block first."
        )
