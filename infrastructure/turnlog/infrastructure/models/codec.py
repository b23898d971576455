"""What is particular to a provider's API: pure functions, shared by the sync and the async client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from turnlog.application.chat import ChatDelta, ChatReply, ChatRequest, ModelError


class StreamDecoder(Protocol):
    """Reads the events of one streamed answer. `is_finished` once the provider's finish marker was seen."""

    is_finished: bool

    def feed(self, event: str | None, data: str) -> Iterator[ChatDelta]:
        """What one event says; `event` is its name where the framing has names, `data` its text.

        Unknown events say nothing. Raises `ModelError` for an event that is an error, `InvalidReplyError` for
        data that is not JSON.
        """
        ...

    def reply(self) -> ChatReply:
        """What came so far: the whole answer when finished; else without calls that are not complete."""
        ...


class Codec(Protocol):
    """One API of one provider."""

    @property
    def renderer(self) -> str:
        """Name and version of what `encode` makes, as in `openai.chat/1`: a storage format."""
        ...

    @property
    def provider(self) -> str:
        """As in the OpenTelemetry GenAI conventions."""
        ...

    @property
    def framing(self) -> Literal["sse", "ndjson"]:
        """How the events of a stream are written."""
        ...

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key, None where no key is used."""
        ...

    @property
    def needs_key(self) -> bool:
        """Whether nothing can be asked without a key."""
        ...

    def url(self, base_url: str) -> str:
        """The address that requests are sent to."""
        ...

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Headers of a request, those with the key included."""
        ...

    def encode(
        self, request: ChatRequest, model: str, *, stream: bool, adaptations: frozenset[str]
    ) -> dict[str, Any]:
        """The body as plain data. `adaptations` are names from `adaptation`, learned from the server."""
        ...

    def decode(self, body: Mapping[str, Any]) -> ChatReply:
        """The answer in a body with status 200. Raises `InvalidReplyError`, or what an error object says."""
        ...

    def decoder(self) -> StreamDecoder:
        """A reader for one streamed answer."""
        ...

    def error(self, status: int, body: Mapping[str, Any] | None, text: str) -> ModelError:
        """What a failed response means; `body` is its JSON, None when it has none, `text` a short excerpt.

        `ModelUnavailableError` says that the same request may succeed later: it is sent again.
        """
        ...

    def adaptation(self, status: int, body: Mapping[str, Any] | None) -> str | None:
        """The name of the change from a fixed list that the server demands, None when there is none."""
        ...

    def continued(self, request: ChatRequest, reply: ChatReply) -> ChatRequest | None:
        """The request that goes on where the provider paused its turn, None when it did not.

        Raises `ContextOverflowError` where the reply shows that the server cut the request.
        """
        ...
