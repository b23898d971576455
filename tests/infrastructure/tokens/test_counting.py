"""Any text is counted: as tiktoken itself counts it, in bounded time, without an exception."""

from __future__ import annotations

import random
import time
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken import Encoding

from turnlog.infrastructure.tokens.counting import EXACT, PIECE, count, estimated
from turnlog.infrastructure.tokens.vocabulary import CL100K_BASE, O200K_BASE, PACKAGED, Vocabulary

BOTH = pytest.mark.parametrize("vocabulary", [O200K_BASE, CL100K_BASE], ids=lambda found: found.name)

PROSE = (
    "The boundary names what stays; everything else is covered, not lost. "
    "Граница называет то, что остаётся. 边界记下留下来的消息，其余的被覆盖。 "
    "def view(log: Log) -> View:\n    # what the model is told\n    return project(log)[-1:]\n\n"
    "It's 12345.67 €, isn't it?\t🙂👩‍👩‍👧\r\n"
)
WRITING = (
    "word It's WE'LL don’t naïve e\u0301 слово 你好 ，你 。 ไทย हिन्दी 한국 2024 3.14 ² Ⅷ a1b2 _ _, "
    "/ // 🙂 👩‍👧 <|endoftext|> http://x.y/z?a=1"
)
SPACING = [
    " ",
    "  ",
    "\t",
    "\t\t",
    "\u00a0",
    "\u2028",
    "\x1c",
    "\x00",
    "\r\n",
    "\n//",
    ";\n",
    "};\n\n",
    "\n \n",
]


def loaded(vocabulary: Vocabulary) -> Encoding:
    encoding = PACKAGED.encoding(vocabulary)
    assert encoding is not None
    return encoding


@BOTH
@pytest.mark.parametrize("times", [1, 10, 1_000])
def test_ordinary_text_costs_what_tiktoken_itself_says(
    vocabulary: Vocabulary, times: int, own_encodings: dict[str, Encoding]
) -> None:
    text = PROSE * times
    expected = len(own_encodings[vocabulary.name].encode_ordinary(text))
    assert count(text, loaded(vocabulary)) == expected


@BOTH
@given(fragments=st.lists(st.sampled_from(WRITING.split(" ") + SPACING), max_size=60))
@settings(max_examples=100, deadline=None)
def test_cutting_a_long_text_does_not_change_its_count(
    vocabulary: Vocabulary, own_encodings: dict[str, Encoding], fragments: list[str]
) -> None:
    text = ("".join(fragments) + " and so on") * PIECE
    assert count(text, loaded(vocabulary)) == len(own_encodings[vocabulary.name].encode_ordinary(text))


@BOTH
@given(text=st.text(st.characters(exclude_categories=())), times=st.integers(1, 3_000))
@settings(deadline=None)
def test_any_text_has_a_count(vocabulary: Vocabulary, text: str, times: int) -> None:
    assert (count(text * times, loaded(vocabulary)) > 0) == bool(text)


@BOTH
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\x00", "\ufffe", "\ud83d\ude00"], ids=ascii)
def test_text_that_utf_8_cannot_say_is_counted(vocabulary: Vocabulary, text: str) -> None:
    assert 0 < count(text, loaded(vocabulary)) <= 8


@BOTH
@pytest.mark.parametrize("text", ["<|endoftext|>", "<|endofprompt|>", "<|im_start|>system"])
def test_the_text_of_a_special_token_is_plain_text(vocabulary: Vocabulary, text: str) -> None:
    assert count(text, loaded(vocabulary)) > 3


@BOTH
@pytest.mark.parametrize("character", ["^", "a", " ", "\n", "中", "🙂", "\ud800", "\x00"], ids=ascii)
def test_fault_024_a_million_equal_characters_are_counted_in_bounded_time(
    vocabulary: Vocabulary, character: str
) -> None:
    encoding = loaded(vocabulary)
    began = time.thread_time()
    counted = count(character * 1_000_000, encoding)
    assert time.thread_time() - began < 10
    assert counted == pytest.approx(200 * len(encoding.encode_ordinary(character * 5_000)), rel=0.2)


@BOTH
@pytest.mark.parametrize("codec", ["ascii", "latin-1", "utf-8", "utf-16"])
def test_ten_megabytes_of_random_text_are_counted_in_bounded_time(vocabulary: Vocabulary, codec: str) -> None:
    noise = random.Random(24)
    text = noise.randbytes(10_000_000).decode(codec, "replace")
    began = time.thread_time()
    assert count(text, loaded(vocabulary)) > len(text) / 2
    assert time.thread_time() - began < 10


@BOTH
def test_of_a_very_long_text_the_whole_is_inferred_from_parts_all_over_it(vocabulary: Vocabulary) -> None:
    encoding = loaded(vocabulary)
    text = PROSE * 2_000 + "x1" * EXACT
    assert count(text, encoding) == pytest.approx(len(encoding.encode_ordinary(text)), rel=0.02)


@BOTH
def test_there_is_no_jump_where_inferring_begins(vocabulary: Vocabulary) -> None:
    encoding = loaded(vocabulary)
    text = (PROSE * EXACT)[: EXACT + 1]
    assert count(text, encoding) == pytest.approx(count(text[:-1], encoding), rel=0.005)


@given(text=st.text(st.characters(exclude_categories=())))
@settings(deadline=None)
def test_without_a_vocabulary_any_text_costs_a_token_for_three_bytes(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    assert size <= 3 * count(text, None) <= size + 2


class PanicException(BaseException):
    """Named and derived as the one of pyo3."""


class Failing:
    """An encoding whose native code fails."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def encode_ordinary(self, _text: str) -> list[int]:
        raise self._error


@pytest.mark.parametrize("error", [PanicException("overflow"), MemoryError(), ValueError("bad")], ids=repr)
def test_fault_024_a_failure_of_the_native_code_becomes_an_estimate(error: BaseException) -> None:
    text = "five words " * 500
    assert count(text, cast("Encoding", Failing(error))) == pytest.approx(
        estimated(text), abs=len(text) / PIECE
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr)
def test_an_interrupt_is_no_failure_of_the_native_code(error: BaseException) -> None:
    with pytest.raises(type(error)):
        count("text", cast("Encoding", Failing(error)))


def test_failures_of_one_kind_are_warned_of_once_and_without_the_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class OnlyHereError(Exception):
        pass

    for _ in range(3):
        count("secret" * PIECE, cast("Encoding", Failing(OnlyHereError("secret"))))
    assert [(record.name, "secret" in record.getMessage()) for record in caplog.records] == [
        ("turnlog", False)
    ]
