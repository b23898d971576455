from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import tiktoken

_PUBLISHED = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


@pytest.fixture(scope="session")
def own_encodings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tiktoken.Encoding]]:
    """What tiktoken itself makes of its encodings, its cache filled by hand instead of by a download."""
    cache = tmp_path_factory.mktemp("tiktoken-cache")
    folder = files("turnlog.infrastructure.tokens") / "vocabularies"
    names = ("o200k_base", "cl100k_base")
    for name in names:
        key = hashlib.sha1(_PUBLISHED.format(name).encode(), usedforsecurity=False).hexdigest()
        (cache / key).write_bytes(lzma.decompress((folder / f"{name}.tiktoken.xz").read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
        yield {name: tiktoken.get_encoding(name) for name in names}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A folder of vocabularies whose content is another than the published one."""
    for name in ("o200k_base", "cl100k_base"):
        (tmp_path / f"{name}.tiktoken.xz").write_bytes(lzma.compress(b"IQ== 0\n"))
    return tmp_path
