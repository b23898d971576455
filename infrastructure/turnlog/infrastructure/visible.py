"""Texts with the characters in them made visible that would steer whoever shows them, or hide."""

from __future__ import annotations

import re

STEERING = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f"
"""What steers a terminal or hides text (C1 controls, direction marks, tags), or has no UTF-8 form."""

_HIDDEN = re.compile(f"[\x00-\x08\x0b-\x1f{STEERING}]")


def visible(text: str) -> str:
    """The text with every control character as a visible mark; line breaks stay, tabs become spaces.

    >>> visible("\\x1b[2J done")
    '␛[2J done'
    """
    return _HIDDEN.sub(_mark, text.replace("\r\n", "\n").expandtabs(4))


def _mark(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
