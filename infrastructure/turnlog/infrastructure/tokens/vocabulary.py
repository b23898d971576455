"""The encodings of tiktoken, built from the vocabularies inside the package."""

from __future__ import annotations

import binascii
import hashlib
import logging
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from threading import Lock
from typing import TYPE_CHECKING

from turnlog.domain.errors import TurnlogError

if TYPE_CHECKING:
    from tiktoken import Encoding

_log = logging.getLogger("turnlog")


class DamagedVocabularyError(TurnlogError):
    """The file of a vocabulary does not hold what was published under its name."""

    def __init__(self, name: str, expected: str, actual: str) -> None:
        super().__init__(
            f"The vocabulary {name} has SHA-256 {actual}, not {expected}. Install the package again."
        )
        self.name = name
        self.expected = expected
        self.actual = actual


@dataclass(frozen=True)
class Vocabulary:
    """The public definition of an encoding, as tiktoken has it in `tiktoken_ext.openai_public`.

    It is written down here because tiktoken's own functions download the ranks before they tell the rest.
    """

    name: str
    sha256: str
    pattern: str
    special_tokens: dict[str, int]

    def read(self, folder: Traversable) -> Encoding:
        """The encoding, from its compressed file in the folder.

        Raises `DamagedVocabularyError`, or what reading and unpacking a file raise.
        """
        # Not at the top: both are needed at the first count only, and some builds of Python have no lzma.
        import lzma

        from tiktoken import Encoding

        content = lzma.decompress((folder / f"{self.name}.tiktoken.xz").read_bytes())
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise DamagedVocabularyError(self.name, self.sha256, found)
        fields = content.split()
        ranks = dict(zip(map(binascii.a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
        return Encoding(
            self.name, pat_str=self.pattern, mergeable_ranks=ranks, special_tokens=self.special_tokens
        )


_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

O200K_BASE = Vocabulary(
    "o200k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "|".join(
        (
            rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    ),
    {"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
)
CL100K_BASE = Vocabulary(
    "cl100k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "|".join(
        (
            r"'(?i:[sdmt]|ll|ve|re)",
            r"[^\r\n\p{L}\p{N}]?+\p{L}++",
            r"\p{N}{1,3}+",
            r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
            r"\s++$",
            r"\s*[\r\n]",
            r"\s+(?!\S)",
            r"\s",
        )
    ),
    {
        "<|endoftext|>": 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
)


class Vocabularies:
    """The vocabularies of a folder, each read once, when first asked for; threads may share it."""

    def __init__(self, folder: Traversable) -> None:
        self._folder = folder
        self._lock = Lock()
        self._encodings: dict[str, Encoding | None] = {}

    def encoding(self, vocabulary: Vocabulary) -> Encoding | None:
        """The encoding, or None when it cannot be read, which the log says once."""
        try:
            return self._encodings[vocabulary.name]
        except KeyError:
            with self._lock:
                if vocabulary.name not in self._encodings:
                    self._encodings[vocabulary.name] = self._read(vocabulary)
                return self._encodings[vocabulary.name]

    def _read(self, vocabulary: Vocabulary) -> Encoding | None:
        try:
            return vocabulary.read(self._folder)
        except Exception as error:
            # A count must never fail an append, whatever is wrong with the installation.
            _log.warning(
                "Tokens are estimated from the length of the text, because %s cannot be loaded (%s: %s).",
                vocabulary.name,
                type(error).__name__,
                error,
            )
            return None


PACKAGED = Vocabularies(files("turnlog.infrastructure.tokens") / "vocabularies")
"""The vocabularies inside the package, shared by the whole process."""
