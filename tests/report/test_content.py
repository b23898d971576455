from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.domain import (
    BlobPart,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.domain.messages import GenericPart
from turnlog.infrastructure.report.content import MAX_IMAGE, is_web_address, parts_data

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def only(part: Part) -> dict[str, Any]:
    (data,) = parts_data([part])
    return data


def image(content: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    return only(BlobPart(modality="image", mime_type=mime_type, content=b64encode(content).decode()))


def test_a_text_is_shown_as_it_was_said() -> None:
    said = "a\0b\u202e</script>\ud800"
    assert parts_data(Message.user(said).parts) == [{"is": "text", "text": said}]


def test_a_picture_of_a_known_kind_is_shown() -> None:
    assert image(PNG)["src"] == "data:image/png;base64," + b64encode(PNG).decode()


@pytest.mark.parametrize("mime_type", ["image/svg+xml", "text/html", "image/png;x", "IMAGE/PNG", "audio/wav"])
def test_media_of_any_other_kind_are_named_and_not_shown(mime_type: str) -> None:
    assert "src" not in image(PNG, mime_type)


def test_a_picture_that_is_not_what_it_says_is_not_shown() -> None:
    assert image(b"<svg onload=alert(1)>")["why"] == "not what it says it is"


def test_a_picture_that_is_too_large_is_not_shown() -> None:
    assert image(PNG + b"\0" * MAX_IMAGE)["why"] == "too large to be shown"


def test_a_picture_whose_base64_is_damaged_is_not_shown() -> None:
    part = BlobPart(modality="image", mime_type="image/png", content='iVBORw0KGgo" onerror="x')
    assert only(part)["why"] == "damaged"


def test_a_picture_inside_an_address_is_shown() -> None:
    uri = "data:image/png;base64," + b64encode(PNG).decode()
    assert only(UriPart(modality="image", uri=uri))["src"] == uri


def test_a_picture_behind_an_address_is_a_link() -> None:
    data = only(UriPart(modality="image", uri="https://example.org/a.png"))
    assert (data["is"], data["link"]) == ("address", True)


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        " https://example.org",
        "data:text/html,<script>alert(1)</script>",
        "file:///etc/passwd",
        "https://",
        "https://exa\u202emple.org",
        "https://example.org/a b",
        "https://[",
        "//example.org",
    ],
)
def test_an_address_that_is_not_of_the_web_is_no_link(uri: str) -> None:
    assert not is_web_address(uri)


def test_arguments_are_indented_and_their_values_stay_as_they_were_written() -> None:
    arguments = '{"sum":1.50,"sum":2e3,"none":[],"deep":{"text":"a, {b}: \\u00e9"}}'
    lines = only(ToolCallPart(name="pay", arguments=arguments))["text"].split("\n")
    assert lines == [
        "{",
        '  "sum": 1.50,',
        '  "sum": 2e3,',
        '  "none": [],',
        '  "deep": {',
        '    "text": "a, {b}: \\u00e9"',
        "  }",
        "}",
    ]


@pytest.mark.parametrize("arguments", ["", "{", "not json", '{"a": 1', "[" * 10_000])
def test_arguments_that_are_no_json_are_shown_as_they_are(arguments: str) -> None:
    assert only(ToolCallPart(name="pay", arguments=arguments))["text"] == arguments


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_indenting_json_never_changes_its_value(value: object) -> None:
    arguments = json.dumps({"value": value})
    assert json.loads(only(ToolCallPart(name="pay", arguments=arguments))["text"]) == {"value": value}


def test_a_result_that_failed_says_so() -> None:
    part = ToolCallResponsePart.model_validate({"id": "c", "response": "no", "is_error": True})
    assert only(part)["error"] is True


def test_the_parts_of_a_result_are_shown_as_parts() -> None:
    response = (BlobPart(modality="image", mime_type="image/png", content=b64encode(PNG).decode()),)
    data = only(ToolCallResponsePart(id="c", response=response))
    assert [part["is"] for part in data["parts"]] == ["image"]


def test_a_thought_that_only_the_provider_can_read_is_named() -> None:
    assert only(ReasoningPart())["hidden"] is True


def test_a_file_is_named_by_its_id() -> None:
    assert only(FilePart(modality="document", file_id="file_1"))["why"] == "file file_1"


def test_a_part_of_an_unknown_type_is_shown_as_data() -> None:
    part = GenericPart.model_validate({"type": "acme.map", "place": "Lund"})
    assert only(part) == {"is": "data", "name": "acme.map", "text": '{\n  "place": "Lund"\n}'}
