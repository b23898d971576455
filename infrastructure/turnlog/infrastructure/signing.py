"""Ed25519 signatures of exported heads. Needs the extra `sign`."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from turnlog.application.audit import InvalidHeadsError

_HEX = 64
"""Characters of a key as hex."""


class Ed25519Signer:
    """Signs with a private key. The key is never shown."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def of_hex(cls, private: str) -> Ed25519Signer:
        """The signer of a private key that is given as 64 hex digits."""
        return cls(Ed25519PrivateKey.from_private_bytes(_key_bytes(private)))

    @classmethod
    def of_file(cls, path: Path) -> Ed25519Signer:
        """The signer of the private key in a file, as `new_key_file` writes it."""
        return cls.of_hex(path.read_text("ascii").strip())

    @property
    def key(self) -> str:
        """The public key, as hex."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, text: bytes) -> str:
        """The signature of the text, as hex."""
        return self._key.sign(text).hex()


class Ed25519Verifier:
    """Knows a public key, 64 hex digits."""

    def __init__(self, public: str) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(_key_bytes(public))

    @property
    def key(self) -> str:
        """The public key, as hex."""
        return self._key.public_bytes_raw().hex()

    def accepts(self, text: bytes, signature: str) -> bool:
        """Whether the signature is the one of this key under the text."""
        try:
            self._key.verify(bytes.fromhex(signature), text)
        except (InvalidSignature, ValueError):
            return False
        return True


def new_key_file(path: Path) -> str:
    """Write a new private key into a file that only its owner reads; returns the public key."""
    key = Ed25519PrivateKey.generate()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(key.private_bytes_raw().hex() + "\n")
    return Ed25519Signer(key).key


def _key_bytes(text: str) -> bytes:
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) * 2 != _HEX:
        raise InvalidHeadsError(f"An Ed25519 key is given as {_HEX} hex digits.")
    return key
