"""The estimator of tokens on tiktoken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from turnlog.domain.errors import InvalidSettingError, NotJsonError
from turnlog.domain.json_text import to_json_text
from turnlog.domain.messages import (
    BlobPart,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.infrastructure.tokens.counting import count
from turnlog.infrastructure.tokens.once import warn_once
from turnlog.infrastructure.tokens.vocabulary import (
    CL100K_BASE,
    O200K_BASE,
    PACKAGED,
    Vocabularies,
    Vocabulary,
)

if TYPE_CHECKING:
    from tiktoken import Encoding

_VOCABULARIES = {
    "o200k_base": O200K_BASE,
    "o200k_harmony": O200K_BASE,  # differs in special tokens only, which a text never has
    "cl100k_base": CL100K_BASE,
}
_BASE64 = re.compile(r"(?<![\w+/=-])[a-zA-Z0-9+/=_-]{512,}")


class TiktokenEstimator:
    """Counts with an encoding (`o200k_base` by default), or with the one that a model of OpenAI uses.

    It never asks the network, never raises on a message, and threads may share it. All figures are tokens:
    `message_tokens` for the frame of a message, and again for each tool call and tool result in it; the
    others for each image, each minute or so of audio or video, and each other file, whatever its size.
    A name that is not known counts as the default and is warned of once. `docs/reference/tokens.md` says
    what is counted.

    >>> TiktokenEstimator("gpt-4o").estimate(Message.user("Where is my order?"))
    9
    """

    def __init__(
        self,
        encoding_or_model: str | None = None,
        *,
        message_tokens: int = 4,
        image_tokens: int = 1_600,
        audio_tokens: int = 2_000,
        video_tokens: int = 18_000,
        file_tokens: int = 6_000,
        vocabularies: Vocabularies = PACKAGED,
    ) -> None:
        if message_tokens < 0:
            raise InvalidSettingError(f"message_tokens is {message_tokens}. Give 0 or more.")
        self._media = {"image": image_tokens, "audio": audio_tokens, "video": video_tokens}
        for kind, tokens in (*self._media.items(), ("file", file_tokens)):
            if tokens < 1:
                raise InvalidSettingError(f"{kind}_tokens is {tokens}. Give 1 or more: none is free.")
        self._vocabulary = _vocabulary(encoding_or_model)
        self._message_tokens = message_tokens
        self._file_tokens = file_tokens
        self._vocabularies = vocabularies

    @property
    def encoding_name(self) -> str:
        """The encoding that is counted with."""
        return self._vocabulary.name

    def estimate(self, message: Message) -> int:
        """The tokens of the message, its frame included; what is never sent (`metadata`, `shape`) is free."""
        encoding = self._vocabularies.encoding(self._vocabulary)
        return self._message_tokens + sum(self._part(part, encoding) for part in message.parts)

    def _part(self, part: Part, encoding: Encoding | None) -> int:
        match part:
            case TextPart(content=content) | ReasoningPart(content=str(content)):
                return count(content, encoding)
            case ToolCallPart():
                return self._message_tokens + count(part.name, encoding) + count(part.arguments, encoding)
            case ToolCallResponsePart():
                return self._message_tokens + self._result(part.response, encoding)
            case BlobPart() | FilePart() | UriPart():
                return self._media.get(part.modality.lower(), self._file_tokens)
            case _:
                return self._json(part, encoding)

    def _result(self, response: str | tuple[Part, ...], encoding: Encoding | None) -> int:
        if isinstance(response, str):
            return count(response, encoding)
        return sum(self._part(part, encoding) for part in response)

    def _json(self, part: Part, encoding: Encoding | None) -> int:
        try:
            text = to_json_text(part.to_dict())
        except (NotJsonError, ValueError):  # it cannot be sent either
            return self._file_tokens
        encoded = sum(min(len(run) // 4, self._file_tokens) for run in _BASE64.findall(text))
        return encoded + count(_BASE64.sub("", text) if encoded else text, encoding)


def _vocabulary(encoding_or_model: str | None) -> Vocabulary:
    if encoding_or_model is None:
        return O200K_BASE
    found = _VOCABULARIES.get(encoding_or_model) or _VOCABULARIES.get(_encoding_of(encoding_or_model))
    if found is None:
        warn_once("No vocabulary for %.80r; tokens are counted with %s.", encoding_or_model, O200K_BASE.name)
    return found or O200K_BASE


def _encoding_of(model: str) -> str:
    from tiktoken.model import encoding_name_for_model  # late, so that an import loads nothing native

    try:
        return encoding_name_for_model(model)
    except KeyError:
        return ""
