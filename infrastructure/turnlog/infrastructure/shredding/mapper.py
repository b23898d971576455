"""A mapper that encrypts each session with a key of its own.

The framework's cipher sees bytes and no session id; so the key is chosen by the mapper. It asks for the key
each time: one that another process destroyed is not used any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from eventsourcing.cryptography import AESCipher
from eventsourcing.persistence import Cipher, Mapper, MapperDeserialisationError, StoredEvent
from eventsourcing.utils import Environment

from turnlog.application.shredding import KeyStore, SessionShreddedError, SessionShredder
from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.events import STREAM_EVENTS, EventErased, SessionDeleted, as_uuid
from turnlog.infrastructure.shredding.key_file import SqliteKeyFile

KEYS_FILE: Final = "TURNLOG_SESSION_KEYS_FILE"

_SEALED: Final = frozenset(
    event_class.TOPIC for event_class in STREAM_EVENTS if event_class not in (SessionDeleted, EventErased)
)
"""What is encrypted: all that a session records, but for its end."""

_NONCE: Final = 12
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SessionKeys(Cipher):
    """Brings the keys to the mapper, by CIPHER_TOPIC. With a CIPHER_KEY it encrypts everything else, too."""

    def __init__(self, environment: Environment) -> None:
        path = environment.get(KEYS_FILE)
        if not path:
            raise InvalidSettingError(f"Set {KEYS_FILE} to a file outside the database of the sessions.")
        self.keys: KeyStore = SqliteKeyFile(path)
        self._others = AESCipher(environment) if environment.get("CIPHER_KEY") else None

    def encrypt(self, plaintext: bytes) -> bytes:
        """The bytes under the key of all others."""
        return self._others.encrypt(plaintext) if self._others else plaintext

    def decrypt(self, ciphertext: bytes) -> bytes:
        """The bytes as they were."""
        return self._others.decrypt(ciphertext) if self._others else ciphertext


class SessionKeyMapper(Mapper[Any], SessionShredder):
    """Encrypts what sessions record with AES-256-GCM, each under its own key, bound to its place.

    An event whose key was destroyed reads as an erased one. Named by MAPPER_TOPIC, with CIPHER_TOPIC naming
    `SessionKeys` or a cipher that derives from it.
    """

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """The stored form, sealed if it is a session's."""
        stored = super().to_stored_event(domain_event)
        if stored.topic not in _SEALED:
            return stored
        key = self._keys.key_or_new(as_uuid(stored.originator_id))
        if key is None:
            raise SessionShreddedError
        nonce = os.urandom(_NONCE)
        sealed = nonce + AESGCM(key).encrypt(nonce, stored.state, _place(stored))
        return replace(stored, state=sealed)

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The event; an erased one when its key was destroyed."""
        opened = self._opened(stored_event)
        if opened is None:
            return EventErased(
                originator_id=stored_event.originator_id,  # type: ignore[arg-type]  # as the store has it
                originator_version=stored_event.originator_version,
                timestamp=_NEVER,
            )
        return super().to_domain_event(replace(stored_event, state=opened))

    def shred(self, aggregate_ids: Iterable[UUID]) -> None:
        """Destroy the keys of these sessions."""
        self._keys.destroy(aggregate_ids)

    def unsealed(self, stored: StoredEvent) -> bytes:
        """What the transcoder wrote."""
        state = self._opened(stored)
        if state is None:
            raise SessionShreddedError
        if self.cipher:
            state = self.cipher.decrypt(state)
        return self.compressor.decompress(state) if self.compressor else state

    @property
    def _keys(self) -> KeyStore:
        if not isinstance(self.cipher, SessionKeys):
            raise InvalidSettingError(
                "SessionKeyMapper needs CIPHER_TOPIC=turnlog.infrastructure.shredding:SessionKeys."
            )
        return self.cipher.keys

    def _opened(self, stored: StoredEvent) -> bytes | None:
        """The bytes under the seal, None when the key was destroyed."""
        if stored.topic not in _SEALED:
            return stored.state
        key = self._keys.key(as_uuid(stored.originator_id))
        if key is None:
            return None
        try:
            return AESGCM(key).decrypt(stored.state[:_NONCE], stored.state[_NONCE:], _place(stored))
        except (InvalidTag, ValueError) as error:
            raise MapperDeserialisationError(
                f"Event {stored.originator_version} is not what was sealed with the key of its session."
            ) from error


def _place(stored: StoredEvent) -> bytes:
    return f"{as_uuid(stored.originator_id).hex}:{stored.originator_version}:{stored.topic}".encode()
