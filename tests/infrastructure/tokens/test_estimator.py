"""What a message costs: everything that is sent, nothing that is not, media by a figure."""

from __future__ import annotations

import base64
import math
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.utils import resolve_topic
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken import Encoding

from turnlog.domain.errors import InvalidSettingError
from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.messages import Message, Role
from turnlog.infrastructure.tokens import TiktokenEstimator
from turnlog.infrastructure.tokens.vocabulary import Vocabularies

ESTIMATOR: TokenEstimator = TiktokenEstimator()
FRAME = 4
IMAGE = 1_600
FILE = 6_000

TEXT = "Where is order 4711, and can it still be sent to Gent?"
ARGUMENTS = '{"order": 4711, "fields": ["place", "carrier", "due"]}'
PIXELS = base64.b64encode(random.Random(102).randbytes(300_000)).decode()


def cost(*parts: dict[str, Any], role: Role = Role.USER) -> int:
    return ESTIMATOR.estimate(Message.of(role, parts))


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def of_type(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


MODALITIES = st.sampled_from(["image", "audio", "video", "document"]) | st.text()
PARTS = st.one_of(
    of_type("text", content=st.text()),
    of_type("reasoning", content=st.text() | st.none()),
    of_type("tool_call", name=st.text(), arguments=st.text()),
    of_type(
        "tool_call_response",
        response=st.text() | st.lists(of_type("text", content=st.text()), max_size=3),
    ),
    of_type("blob", modality=MODALITIES, content=st.text()),
    of_type("file", modality=MODALITIES, file_id=st.text()),
    of_type("uri", modality=MODALITIES, uri=st.text()),
    of_type("vendor", payload=st.dictionaries(st.text(), st.text())),
)


@pytest.mark.parametrize("role", list(Role))
def test_text_costs_its_tokens_and_the_frame_of_the_message(
    role: Role, own_encodings: dict[str, Encoding]
) -> None:
    expected = FRAME + len(own_encodings["o200k_base"].encode_ordinary(TEXT))
    assert cost(text(TEXT), role=role) == expected


def test_a_message_without_parts_costs_its_frame() -> None:
    assert cost() == FRAME


def test_reasoning_costs_like_text() -> None:
    assert cost({"type": "reasoning", "content": TEXT, "signature": PIXELS}) == cost(text(TEXT))


def test_fault_006_the_system_text_and_the_frame_of_each_message_are_counted() -> None:
    assert ESTIMATOR.estimate(Message.system(TEXT * 100)) > 1_000 + FRAME


def test_fault_006_a_tool_call_costs_its_name_and_its_arguments() -> None:
    call = {"type": "tool_call", "id": "call_1", "name": "find_order", "arguments": ARGUMENTS}
    assert cost(call) - FRAME == cost(text("find_order")) + cost(text(ARGUMENTS)) - FRAME


def test_fault_006_a_tool_result_of_text_costs_its_text() -> None:
    result = {"type": "tool_call_response", "id": "call_1", "response": TEXT}
    assert cost(result) - FRAME == cost(text(TEXT))


def test_fault_006_a_tool_result_of_parts_costs_its_parts() -> None:
    image = {"type": "blob", "modality": "image", "content": PIXELS}
    result = {"type": "tool_call_response", "id": "call_1", "response": [text(TEXT), image]}
    assert cost(result) - FRAME == cost(text(TEXT)) + IMAGE


def test_the_id_of_a_call_costs_nothing() -> None:
    call = {"type": "tool_call", "name": "find_order", "arguments": ARGUMENTS}
    assert cost({**call, "id": "call_" + "9" * 60}) == cost(call)


def test_what_is_never_sent_costs_nothing() -> None:
    bare = Message.user(TEXT)
    full = Message.user(TEXT, origin="openai.chat", shape={"content": "list"}, metadata={"note": TEXT * 50})
    assert ESTIMATOR.estimate(full) == ESTIMATOR.estimate(bare)


@pytest.mark.parametrize(
    "kind", ["server_tool_call", "server_tool_call_response", "compaction", "vendor.note"]
)
def test_a_part_of_another_type_costs_its_compact_json(kind: str) -> None:
    part = {"type": kind, "query": TEXT, "hits": [1, 2]}
    assert cost(part) == cost(text(f'{{"type":"{kind}","query":"{TEXT}","hits":[1,2]}}'))


@pytest.mark.parametrize(
    ("modality", "figure"),
    [("image", IMAGE), ("IMAGE", IMAGE), ("audio", 2_000), ("video", 18_000), ("document", FILE), ("", FILE)],
)
@pytest.mark.parametrize(
    "where",
    [
        {"type": "blob", "content": PIXELS},
        {"type": "file", "file_id": "file-1"},
        {"type": "uri", "uri": "data:image/png;base64," + PIXELS},
    ],
    ids=["blob", "file", "uri"],
)
def test_media_cost_the_figure_of_their_modality(where: dict[str, Any], modality: str, figure: int) -> None:
    assert cost({**where, "modality": modality}) == FRAME + figure


def test_fault_102_forty_five_images_in_ten_turns_cost_forty_five_times_the_figure() -> None:
    image = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PIXELS}
    turns = [cost(text(TEXT), *[image] * images) for images in [5] * 5 + [4] * 5]
    assert sum(turns) == 10 * cost(text(TEXT)) + 45 * IMAGE


def test_fault_102_the_figure_of_an_image_can_be_set() -> None:
    image = Message.user([{"type": "uri", "modality": "image", "uri": "https://example.org/a.png"}])
    assert TiktokenEstimator(image_tokens=765).estimate(image) == FRAME + 765


@pytest.mark.parametrize("figure", ["image_tokens", "audio_tokens", "video_tokens", "file_tokens"])
def test_fault_102_no_medium_is_free(figure: str) -> None:
    settings: dict[str, Any] = {figure: 0}
    with pytest.raises(InvalidSettingError, match=f"{figure} is 0. Give 1 or more"):
        TiktokenEstimator(**settings)


def test_a_frame_cannot_cost_less_than_nothing() -> None:
    with pytest.raises(InvalidSettingError, match="message_tokens is -1"):
        TiktokenEstimator(message_tokens=-1)


def test_base64_inside_a_part_of_another_type_costs_at_most_the_figure_of_a_file() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": PIXELS}
    assert FILE < cost({"type": "document", "source": source}) < FILE + 50


def test_encrypted_reasoning_costs_a_token_for_four_characters() -> None:
    part = {"type": "reasoning", "encrypted_content": PIXELS[:4_000]}
    assert 1_000 < cost(part) < 1_000 + 30


@pytest.mark.parametrize("value", [math.nan, object(), 10**5_000], ids=["nan", "object", "huge"])
def test_a_part_that_json_cannot_say_costs_the_figure_of_a_file(value: object) -> None:
    assert cost({"type": "vendor", "value": value}) == FRAME + FILE


@given(first=st.lists(PARTS, max_size=4), second=st.lists(PARTS, max_size=4))
@settings(deadline=None)
def test_parts_of_one_message_cost_what_they_cost_apart(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    assert cost(*first, *second) == cost(*first) + cost(*second) - FRAME


@given(parts=st.lists(PARTS, max_size=4), part=PARTS)
@settings(deadline=None)
def test_a_further_part_never_makes_a_message_cheaper(
    parts: list[dict[str, Any]], part: dict[str, Any]
) -> None:
    assert cost(*parts, part) >= cost(*parts) >= FRAME


@given(content=st.text(st.characters(exclude_categories=())))
@settings(deadline=None)
def test_any_text_anywhere_in_a_message_is_counted(content: str) -> None:
    parts = [
        text(content),
        {"type": "tool_call", "name": content, "arguments": content},
        {"type": "tool_call_response", "response": content},
        {"type": "vendor", "note": content},
    ]
    assert cost(*parts) >= FRAME


def test_sixteen_threads_count_the_same() -> None:
    messages = [Message.user(TEXT * times) for times in range(1, 101)]
    expected = [ESTIMATOR.estimate(message) for message in messages]
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(ESTIMATOR.estimate, messages * 32))
    assert answers == expected * 32


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        (None, "o200k_base"),
        ("o200k_base", "o200k_base"),
        ("cl100k_base", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-2024-05-13", "o200k_base"),
        ("ft:gpt-4o:acme", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("o200k_harmony", "o200k_base"),
    ],
)
def test_a_known_name_gives_its_encoding_without_a_warning(
    name: str | None, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (TiktokenEstimator(name).encoding_name, caplog.records) == (encoding, [])


@pytest.mark.parametrize(
    "name", ["gpt-5", "claude-x", "qwen2.5:1.5b", "", None, "gpt2", "p50k_base", "\ud800"]
)
def test_fault_074_a_model_without_a_mapping_counts_as_the_default(name: str | None) -> None:
    assert TiktokenEstimator(name).estimate(Message.user(TEXT)) == cost(text(TEXT))


def test_fault_074_an_unknown_name_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for name in ["claude-once", "claude-once", "qwen-once", "claude-once"]:
        TiktokenEstimator(name)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("turnlog", "No vocabulary for 'claude-once'; tokens are counted with o200k_base."),
        ("turnlog", "No vocabulary for 'qwen-once'; tokens are counted with o200k_base."),
    ]


def test_fault_009_without_a_vocabulary_a_message_is_estimated_from_its_length(damaged: Path) -> None:
    estimator = TiktokenEstimator(vocabularies=Vocabularies(damaged))
    assert estimator.estimate(Message.user("a" * 300)) == FRAME + 100


def test_the_framework_resolves_it_by_its_topic_and_makes_it_without_arguments() -> None:
    found = resolve_topic("turnlog.infrastructure.tokens:TiktokenEstimator")
    assert found().estimate(Message.user("hi")) == FRAME + 1
