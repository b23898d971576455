"""The bodies of requests are a storage format: a renderer version makes the same bytes in every release."""

from __future__ import annotations

import json

import pytest
from tests.models.golden_requests import CODECS, REQUESTS, bodies, file_of

from turnlog.infrastructure.models.codec import Codec

EACH = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.renderer)


@EACH
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_rendered_as_it_was_in_every_release(codec: Codec, name: str) -> None:
    stored = json.loads(file_of(codec).read_text(encoding="utf-8"))
    assert bodies(codec)[name] == stored[name]


@EACH
def test_every_request_has_a_stored_body(codec: Codec) -> None:
    assert set(json.loads(file_of(codec).read_text(encoding="utf-8"))) == set(REQUESTS)
