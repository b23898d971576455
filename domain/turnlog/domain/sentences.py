"""Sentences and exact identifiers in texts of any script, in time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SENTENCE_END = re.compile(
    r"""[.!?…]++["'”’»)\]]*+(?=\s|$)   # Latin, Cyrillic, Greek: an end only in front of a blank
      | [。！？｡]++["”’」』】）)]*+       # Chinese and Japanese: no blank follows
      | [।॥]++                        # Devanagari
      | [؟۔]++                         # Arabic and Urdu
      | [።។။]                         # Ethiopic, Khmer, Burmese
      | \n""",
    re.VERBOSE,
)

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Thai to Lao, Burmese, Khmer, kana and Han: scripts whose words have no blanks between them."""

_RUN = re.compile(rf"(?:[^\W{_UNSPACED}]|[./\\:@#%+~$€£¥&=?-])++")
_FILE = re.compile(r"[\w-]{2,}(?:\.[\w-]+)*\.[A-Za-z]\w{0,9}")
_PATH = re.compile(r"(?:[~.]{0,2}/|[A-Za-z]:\\)")

_LONGEST_IDENTIFIER = 120
_TAIL = 2_000


def one_line(text: str, most: int) -> str:
    """The beginning of the text on one line: to its end, else to that of a sentence or a word, and `…`.

    >>> one_line("Where is my  parcel? It was sent on Monday.", 30)
    'Where is my parcel? …'
    """
    line = " ".join(text.lstrip()[: most * 4].split())
    if len(line) <= most and len(text.lstrip()) <= most * 4:
        return line
    cut = line[: max(1, most - 2)]
    ends = [found.end() for found in _SENTENCE_END.finditer(cut + " x") if found.end() < len(cut)]
    if ends and ends[-1] * 2 >= most:
        return f"{cut[: ends[-1]]} …"
    word = cut.rfind(" ")
    return f"{(cut[:word] if word * 2 > most else cut).rstrip()} …"


def last_sentence(text: str, most: int) -> str:
    """The last sentence of the text on one line; empty when there is none.

    >>> last_sentence("It was lost. I have found it in Lund!  ", 80)
    'I have found it in Lund!'
    """
    tail = text.rstrip()[-_TAIL:]
    ends = [found.end() for found in _SENTENCE_END.finditer(tail) if found.end() < len(tail)]
    return one_line(tail[ends[-1] if ends else 0 :], most)


def identifiers(text: str) -> Iterator[str]:
    """Numbers, ids, paths, addresses and names of files as they stand in the text, in order, repeats too.

    >>> list(identifiers("Order HAT-123 of ada@example.com is in /srv/data; see run.log and 订单号42."))
    ['HAT-123', 'ada@example.com', '/srv/data', 'run.log', '42']
    """
    for run in _RUN.findall(text):
        found = run.strip(".:?&=").rstrip("-+~#")
        if 2 <= len(found) <= _LONGEST_IDENTIFIER and _is_exact(found):
            yield found


def _is_exact(word: str) -> bool:
    """Whether a paraphrase of the word would be wrong."""
    if any(map(str.isdigit, word)) or "_" in word or "@" in word[1:]:
        return True
    if "/" in word or "\\" in word:
        return bool(_PATH.match(word)) or "://" in word or word.count("/") > 1 or "\\" in word
    if word.isupper():
        return 3 <= len(word) <= 10 and word.isalpha()
    inner = word[1:]
    return bool(_FILE.fullmatch(word)) or (inner != inner.lower() and word.isascii() and word.isalpha())
