"""What can go wrong when a model is called. No message holds a key or what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.domain.errors import TurnlogError

if TYPE_CHECKING:
    from turnlog.application.chat.model import ChatReply


class ModelError(TurnlogError):
    """A call of a model failed."""


class MissingKeyError(ModelError):
    """A provider that needs a key has none."""


class ModelUnavailableError(ModelError):
    """The server cannot be reached, or said after all retries that it cannot answer now."""


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
