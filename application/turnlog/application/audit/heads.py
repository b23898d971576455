"""The newest chain values of sessions, taken out of the database: what was there then can be proven later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol, Self, cast
from uuid import UUID

from turnlog.application.audit.errors import InvalidHeadsError, InvalidSignatureError
from turnlog.domain.json_text import sorted_json_text

FORMAT: Final = "turnlog.heads/1"


class HeadSigner(Protocol):
    """Signs exported heads."""

    @property
    def key(self) -> str:
        """The public key, as hex."""
        ...

    def sign(self, text: bytes) -> str:
        """The signature of the text, as hex."""
        ...


class HeadVerifier(Protocol):
    """Knows a public key."""

    @property
    def key(self) -> str:
        """The public key, as hex."""
        ...

    def accepts(self, text: bytes, signature: str) -> bool:
        """Whether the signature is the one of this key under the text."""
        ...


@dataclass(frozen=True)
class Head:
    """The newest event of a stream when the heads were taken: its version and chain value."""

    aggregate_id: UUID
    version: int
    chain: str


@dataclass(frozen=True)
class Heads:
    """The heads of sessions at a time, with a signature if there is one.

    `lost` are those among them whose events the log did not have when they were taken: only the row of the
    session told of them. It is no part of the export.
    """

    taken_at: datetime
    heads: tuple[Head, ...]
    key: str | None = None
    signature: str | None = None
    lost: tuple[Head, ...] = field(default=(), compare=False)

    def signed(self, signer: HeadSigner) -> Self:
        """The same with the signature of this key."""
        return replace(self, key=signer.key, signature=signer.sign(self._text()))

    def require_signature(self, verifier: HeadVerifier) -> None:
        """`InvalidSignatureError` unless the key of the verifier signed these heads."""
        if self.signature is None or not verifier.accepts(self._text(), self.signature):
            fault = "not signed" if self.signature is None else "not signed by this key, or were changed"
            raise InvalidSignatureError(f"The exported heads are {fault}: do not rely on them.")

    def to_json(self) -> str:
        """The heads as JSON, for `of_json`."""
        data = self._data()
        if self.signature is not None:
            data["signature"] = {"algorithm": "Ed25519", "key": self.key, "value": self.signature}
        return json.dumps(data, indent=1)

    @classmethod
    def of_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote; `InvalidHeadsError` for anything else."""
        try:
            data = cast("Mapping[str, Any]", json.loads(text))
            if data["format"] != FORMAT:
                raise InvalidHeadsError(
                    f"These heads are in format {data['format']!r}; {FORMAT!r} can be read."
                )
            rows = cast("Sequence[Mapping[str, Any]]", data["heads"])
            heads = tuple(Head(UUID(row["aggregate"]), int(row["version"]), str(row["head"])) for row in rows)
            signature = cast("Mapping[str, Any]", data.get("signature") or {})
            taken_at = datetime.fromisoformat(data["taken_at"]).astimezone(UTC)
            return cls(taken_at, heads, signature.get("key"), signature.get("value"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidHeadsError(
                f"This is no export of heads ({type(error).__name__}): it is cut off, or another file."
            ) from error

    def _data(self) -> dict[str, Any]:
        rows = [
            {"aggregate": head.aggregate_id.hex, "version": head.version, "head": head.chain}
            for head in self.heads
        ]
        return {"format": FORMAT, "taken_at": self.taken_at.isoformat(), "heads": rows}

    def _text(self) -> bytes:
        """What is signed."""
        return sorted_json_text(self._data()).encode()
