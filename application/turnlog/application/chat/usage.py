"""What a call of a model used, in one form for all providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from turnlog.domain.messages import Message


@dataclass(frozen=True)
class Usage:
    """Tokens of one call, with the names of the OpenTelemetry GenAI conventions; None where it was not said.

    `input_tokens` is the whole prompt, cached tokens included. `provider` is the provider's object as it
    came.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    provider: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it is stored in the metadata of the answer, under `usage`; what was not said is left out."""
        said = {name: value for name, value in vars(self).items() if value is not None}
        return said if self.provider is None else {**said, "provider": dict(self.provider)}

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """The usage that is stored with an answer, None when there is none in this form."""
        stored = (message.metadata or {}).get("usage")
        if not isinstance(stored, Mapping) or "provider" not in stored:
            return None
        stored = cast("Mapping[str, Any]", stored)
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})
