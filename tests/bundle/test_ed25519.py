"""The verifier's Ed25519, against the vectors of RFC 8032 and against `cryptography`."""

from __future__ import annotations

import random

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from turnlog.infrastructure.bundle.verify import L, verifies

VECTORS = [  # RFC 8032, section 7.1: public key, message, signature
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_a_vector_of_the_rfc_verifies(key: str, message: str, signature: str) -> None:
    assert verifies(key, bytes.fromhex(message), signature)


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_a_vector_with_another_message_does_not(key: str, message: str, signature: str) -> None:
    assert not verifies(key, bytes.fromhex(message) + b"x", signature)


def test_random_signatures_are_judged_as_cryptography_does() -> None:
    random_ = random.Random(8032)
    for _ in range(60):
        private = Ed25519PrivateKey.from_private_bytes(random_.randbytes(32))
        key, text = private.public_key().public_bytes_raw(), random_.randbytes(random_.randrange(80))
        signature = bytearray(private.sign(text))
        if random_.random() < 0.6:
            signature[random_.randrange(64)] ^= 1 << random_.randrange(8)
        assert verifies(key.hex(), text, signature.hex()) is _accepts(key, text, bytes(signature))


def test_a_scalar_beyond_the_order_is_refused() -> None:
    """Otherwise each signature would have a second form."""
    key, message, signature = VECTORS[0]
    scalar = int.from_bytes(bytes.fromhex(signature)[32:], "little") + L
    assert not verifies(key, bytes.fromhex(message), signature[:64] + scalar.to_bytes(32, "little").hex())


@pytest.mark.parametrize("key", ["", "zz" * 32, "ff" * 32, "00" * 31, "02" + "00" * 31])
def test_what_is_no_key_verifies_nothing(key: str) -> None:
    assert not verifies(key, b"", VECTORS[0][2])


def _accepts(key: bytes, text: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except InvalidSignature:
        return False
    return True
