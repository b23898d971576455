"""The vocabularies come from the package, whole or not at all, once per process."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Barrier
from typing import cast

import pytest
from tiktoken import Encoding

from turnlog.infrastructure.tokens.vocabulary import (
    CL100K_BASE,
    O200K_BASE,
    DamagedVocabularyError,
    Vocabularies,
    Vocabulary,
)

FOLDER = files("turnlog.infrastructure.tokens") / "vocabularies"
BOTH = pytest.mark.parametrize("vocabulary", [O200K_BASE, CL100K_BASE], ids=lambda found: found.name)


class Counted:
    """The folder of the package, which counts how often a file is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __truediv__(self, name: str) -> Traversable:
        self.asked += 1
        return FOLDER / name


def run(code: str, home: Path) -> str:
    """What a new process prints, with no cache and no network."""
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    environment.pop("TIKTOKEN_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@BOTH
def test_the_definition_is_the_one_of_tiktoken(
    vocabulary: Vocabulary, own_encodings: dict[str, Encoding]
) -> None:
    ours, theirs = vocabulary.read(FOLDER), own_encodings[vocabulary.name]
    assert (ours.n_vocab, ours.special_tokens_set, ours.token_byte_values()) == (
        theirs.n_vocab,
        theirs.special_tokens_set,
        theirs.token_byte_values(),
    )


def test_fault_009_the_first_count_needs_no_network(tmp_path: Path) -> None:
    code = """
import socket
def refuse(*_, **__):
    raise AssertionError("the network was used")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from turnlog.domain.messages import Message
from turnlog.infrastructure.tokens import TiktokenEstimator
names = ("o200k_base", "cl100k_base", "gpt-4o", "gpt-4", "no-such-model", "gpt2", None)
print([TiktokenEstimator(name, message_tokens=0).estimate(Message.user("hi")) for name in names])
"""
    assert run(code, tmp_path) == "[1, 1, 1, 1, 1, 1, 1]\n"


def test_importing_and_constructing_load_nothing(tmp_path: Path) -> None:
    code = """
import sys
from turnlog.infrastructure.tokens import TiktokenEstimator
TiktokenEstimator()
print("tiktoken" in sys.modules)
"""
    assert run(code, tmp_path) == "False\n"


def test_sixteen_threads_that_come_first_read_the_file_once() -> None:
    folder = Counted()
    vocabularies = Vocabularies(cast("Traversable", folder))
    together = Barrier(16)

    def first(_: int) -> Encoding | None:
        together.wait()
        return vocabularies.encoding(CL100K_BASE)

    with ThreadPoolExecutor(16) as threads:
        found = set(map(id, threads.map(first, range(16))))
    assert (folder.asked, len(found)) == (1, 1)


def test_another_content_than_the_published_one_is_refused(damaged: Path) -> None:
    with pytest.raises(DamagedVocabularyError, match=f"not {CL100K_BASE.sha256}. Install"):
        CL100K_BASE.read(damaged)


PUBLISHED = (FOLDER / "cl100k_base.tiktoken.xz").read_bytes()


@pytest.mark.parametrize(
    "content",
    [None, b"", PUBLISHED[:100_000], lzma.compress(lzma.decompress(PUBLISHED) + b"\n", preset=0)],
    ids=["missing", "empty", "truncated", "altered"],
)
def test_a_vocabulary_that_cannot_be_loaded_is_warned_of_once_and_not_tried_again(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if content is not None:
        (tmp_path / "cl100k_base.tiktoken.xz").write_bytes(content)
    vocabularies = Vocabularies(tmp_path)
    assert [vocabularies.encoding(CL100K_BASE) for _ in range(3)] == [None, None, None]
    assert [(record.name, record.levelname) for record in caplog.records] == [("turnlog", "WARNING")]
