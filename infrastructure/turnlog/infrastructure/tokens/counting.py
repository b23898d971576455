"""Counting the tokens of any text in bounded time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from turnlog.infrastructure.tokens.once import warn_once

if TYPE_CHECKING:
    from tiktoken import Encoding

PIECE = 1_000
"""The most characters that tiktoken gets at once.

A long run without a break overflows the stack of its pattern matcher (1,000,000 spaces, tiktoken 0.14), and
before 0.13 takes time by the square of its length.
"""
EXACT = 500_000
"""The most characters of one text that are counted. Of a longer one as many are, evenly spread over it."""
_SAMPLES = 100

_PIECES = re.compile(
    rf"""
    (?s:.{{1,{PIECE}}}) (?:             # as long as it can be, up to where both encodings break anyway:
        (?<=\S)       (?=[ \t])         #   before a space that follows something else,
      | (?<=[\r\n])   (?=[ \t]*[^\s/])  #   after a line break (`/` can belong to the token before it),
      | (?<=[^\W_])   (?=[,.;:!?()，。、；：！？「」])  # between a word and punctuation,
      | (?<=[a-zA-Z]) (?=[0-9])         #   between a letter and a digit, or at the end
      | \Z
    )
    | (?s:.{{1,{PIECE}}})               # if there is none: the cut costs a token or two
    """,
    re.VERBOSE,
)


def count(text: str, encoding: Encoding | None) -> int:
    """The tokens of the text, special tokens in it read as plain text; without an encoding, estimated."""
    if encoding is None:
        return estimated(text)
    if len(text) <= PIECE:
        return _encoded(text, encoding)
    if len(text) <= EXACT:
        return sum(_encoded(piece, encoding) for piece in _PIECES.findall(text))
    size = EXACT // _SAMPLES
    last = len(text) - size
    starts = (last * sample // (_SAMPLES - 1) for sample in range(_SAMPLES))
    counted = sum(count(text[start : start + size], encoding) for start in starts)
    return counted * len(text) // EXACT


def estimated(text: str) -> int:
    """A token for three bytes of UTF-8, rounded up: too many for most prose, about right for Chinese."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def _encoded(piece: str, encoding: Encoding) -> int:
    try:
        return len(encoding.encode_ordinary(piece))
    except BaseException as error:
        # A panic in Rust is no `Exception`; of its kind only that is caught, never an interrupt or a timeout.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        warn_once(
            "Some tokens are estimated from the length of the text: tiktoken failed with %s.",
            type(error).__name__,
        )
        return estimated(piece)
