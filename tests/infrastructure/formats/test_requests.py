"""What a request is made of: the same conversations for both providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from turnlog.domain.log import EventType, SessionEvent
from turnlog.domain.messages import (
    BlobPart,
    FilePart,
    GenericPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from turnlog.domain.view import View
from turnlog.infrastructure.formats import PrefillWarning, anthropic_messages, openai_chat

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
INTERRUPTED = "[no result: the call was interrupted]"
UNANSWERED = "[no result so far]"


def call(name: str | None, tool: str = "find", arguments: str = "{}", awaiting: bool = False) -> ToolCallPart:
    return ToolCallPart(id=name, name=tool, arguments=arguments, awaiting=awaiting)


def event(place: int, message: Message, synthetic: bool = False, branch: str | None = None) -> SessionEvent:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return SessionEvent(
        f"e{place}", EventType.MESSAGE, place, now, message=message, synthetic=synthetic, branch=branch
    )


def openai(*messages: Message | SessionEvent, **options: Any) -> list[dict[str, Any]]:
    return list(openai_chat.request(messages, model="a-model", **options)["messages"])


def anthropic(*messages: Message | SessionEvent, **options: Any) -> list[dict[str, Any]]:
    return list(anthropic_messages.request(messages, model="a-model", **options)["messages"])


def openai_results(*messages: Message) -> list[str]:
    return [one["content"] for one in openai(*messages) if one["role"] == "tool"]


def anthropic_blocks(kind: str, *messages: Message, **options: Any) -> list[dict[str, Any]]:
    wire = anthropic(*messages, **options)
    return [block for one in wire for block in one["content"] if block["type"] == kind]


def anthropic_results(*messages: Message) -> list[str]:
    return [block["content"] for block in anthropic_blocks("tool_result", *messages)]


BOTH = pytest.mark.parametrize("results", [openai_results, anthropic_results])
U = Message.user("Where is it?")


# Calls and results


@BOTH
def test_an_interrupted_call_is_closed_with_a_result_that_says_so(results: Any) -> None:
    assert results(U, Message.assistant([call("c1")]), U) == [INTERRUPTED]


@BOTH
def test_of_three_parallel_calls_only_the_unanswered_are_closed(results: Any) -> None:
    asked = Message.assistant([call("c1"), call("c2"), call("c3")])
    assert results(U, asked, Message.tool("b", id="c2"), U) == [INTERRUPTED, "b", INTERRUPTED]


@BOTH
def test_an_awaited_call_is_closed_with_a_text_that_promises_no_result(results: Any) -> None:
    assert results(U, Message.assistant([call("c1", awaiting=True)]), U) == [UNANSWERED]


@BOTH
def test_a_provisional_result_is_told_until_the_final_one_comes(results: Any) -> None:
    waiting = ToolCallResponsePart(id="c1", response="asked Bo", provisional=True)
    so_far = [U, Message.assistant([call("c1", awaiting=True)]), Message.tool([waiting]), U]
    assert results(*so_far) == ["asked Bo"]
    assert results(*so_far, Message.tool("Bo says yes", id="c1")) == ["Bo says yes"]


@BOTH
def test_parallel_results_stand_behind_their_calls_in_the_order_of_the_calls(results: Any) -> None:
    asked = Message.assistant([call("c1"), call("c2")])
    told = [U, asked, Message.tool("b", id="c2"), U, Message.tool("a", id="c1")]
    assert results(*told) == ["a", "b"]


@BOTH
def test_results_of_one_id_in_one_batch_are_paired_by_position(results: Any) -> None:
    asked = Message.assistant([call("c1"), call("c1")])
    assert results(U, asked, Message.tool("x", id="c1"), Message.tool("y", id="c1")) == ["x", "y"]


@BOTH
def test_an_id_that_the_provider_reuses_names_the_newest_open_call(results: Any) -> None:
    told = [
        U,
        Message.assistant([call("c1")]),
        U,
        Message.assistant([call("c1")]),
        Message.tool("y", id="c1"),
    ]
    assert results(*told) == [INTERRUPTED, "y"]


@BOTH
def test_a_late_result_of_a_reused_id_belongs_to_the_call_that_is_open(results: Any) -> None:
    first = Message.assistant([call("c1", awaiting=True)])
    second = [Message.assistant([call("c1")]), Message.tool("y", id="c1")]
    assert results(U, first, U, *second, Message.tool("x", id="c1")) == ["x", "y"]


@BOTH
def test_a_provisional_result_keeps_its_call_open_when_the_id_is_reused(results: Any) -> None:
    waiting = ToolCallResponsePart(id="c1", response="asked Bo", provisional=True)
    first = [Message.assistant([call("c1", awaiting=True)]), Message.tool([waiting])]
    second = [Message.assistant([call("c1")]), Message.tool("y", id="c1")]
    assert results(U, *first, *second, Message.tool("x", id="c1")) == ["x", "y"]


@BOTH
def test_a_second_result_of_one_id_goes_to_the_call_that_has_none(results: Any) -> None:
    waiting = ToolCallResponsePart(id="c1", response="asked Bo", provisional=True)
    asked = Message.assistant([call("c1", awaiting=True), call("c1")])
    assert results(U, asked, Message.tool([waiting]), Message.tool("y", id="c1")) == ["asked Bo", "y"]


@BOTH
def test_a_result_without_its_call_is_left_out(results: Any) -> None:
    assert results(U, Message.tool("lost", id="c9"), Message.assistant("Hm."), U) == []


@BOTH
def test_a_tool_message_of_plain_text_is_the_result_of_the_open_call(results: Any) -> None:
    bare = Message.tool([TextPart(content="here")])
    assert results(U, Message.assistant([call("c1")]), bare) == ["here"]


@BOTH
def test_a_plain_text_that_names_its_call_is_the_result_of_that_call(results: Any) -> None:
    bare = Message.tool([TextPart(content="here")], tool_call_id="c1")
    asked = Message.assistant([call("c2"), call("c1")])
    assert results(U, asked, bare, Message.tool("there", id="c2")) == ["there", "here"]


@BOTH
def test_calls_without_ids_are_paired_by_position(results: Any) -> None:
    asked = Message.assistant([call(None, "find"), call(None, "look")])
    told = [U, asked, Message.tool("l", name="look"), Message.tool("f", name="find")]
    assert results(*told) == ["f", "l"]


def test_what_a_simulated_user_calls_is_left_out() -> None:
    told = [Message.user([call("c1")]), Message.tool("on", id="c1"), U]
    assert openai(*told) == [{"role": "user", "content": "Where is it?"}]


def test_results_of_anthropic_come_first_in_one_user_message() -> None:
    asked = Message.assistant([call("c1"), call("c2"), call("c3")])
    results = [Message.tool(name, id=name) for name in ("c1", "c2", "c3")]
    last = anthropic(U, asked, *results, Message.user("And now?"))[-1]
    assert [block["type"] for block in last["content"]] == [*["tool_result"] * 3, "text"]
    assert [block.get("tool_use_id") for block in last["content"]] == ["c1", "c2", "c3", None]


def test_results_of_openai_are_messages_of_their_own() -> None:
    asked = Message.assistant([call("c1"), call("c2")])
    together = Message.tool(
        [ToolCallResponsePart(id="c2", response="b"), ToolCallResponsePart(id="c1", response="a")]
    )
    told = openai(U, asked, together)
    assert told[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "tool", "tool_call_id": "c2", "content": "b"},
    ]


def test_ids_that_fit_stay_and_others_are_mapped_in_call_and_result_alike() -> None:
    told = anthropic(U, Message.assistant([call("c1"), call("c.2")]), Message.tool("b", id="c.2"))
    ids = [block["id"] for block in told[1]["content"]]
    assert ids[0] == "c1"
    assert ids[1] == told[2]["content"][1]["tool_use_id"] != "c.2"


def test_an_id_that_is_too_long_for_openai_is_mapped() -> None:
    told = openai(U, Message.assistant([call("toolu_" + "x" * 40)]))
    assert told[1]["tool_calls"][0]["id"] == told[2]["tool_call_id"]
    assert len(told[2]["tool_call_id"]) <= 40


def test_names_that_differ_only_in_what_is_not_allowed_stay_distinct() -> None:
    told = openai(U, Message.assistant([call("c1", "a.b"), call("c2", "a b"), call("c3", "a_b")]))
    names = [one["function"]["name"] for one in told[1]["tool_calls"]]
    assert names[2] == "a_b"
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"b":1.0,"a":1}', {"b": 1.0, "a": 1}),
        ("", {}),
        ('{"path": ', {"raw_arguments": '{"path": '}),
        ("[1]", {"raw_arguments": "[1]"}),
        ('{"a": NaN}', {"raw_arguments": '{"a": NaN}'}),
        ('{"a": 1e999}', {"raw_arguments": '{"a": 1e999}'}),
        ('{"a":' * 150 + "1" + "}" * 150, {"raw_arguments": '{"a":' * 150 + "1" + "}" * 150}),
        ('{"a": "\udcff"}', {"a": "�"}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(written: str, sent: dict[str, Any]) -> None:
    blocks = anthropic_blocks("tool_use", U, Message.assistant([call("c1", arguments=written)]))
    assert blocks[0]["input"] == sent


def test_openai_gets_the_arguments_as_the_model_wrote_them() -> None:
    written = '{"b":1.0,\n "a":1}'
    told = openai(U, Message.assistant([call("c1", arguments=written)]))
    assert told[1]["tool_calls"][0]["function"]["arguments"] == written


def test_arguments_that_are_not_valid_for_openai_are_mended() -> None:
    told = openai(U, Message.assistant([call("c1", arguments='{"a": "\udcff"}')]))
    assert told[1]["tool_calls"][0]["function"]["arguments"] == '{"a": "�"}'


def test_an_id_that_is_reused_is_sent_once_as_it_is() -> None:
    answered = [Message.assistant([call("c1")]), Message.tool("a", id="c1")]
    first, second = anthropic_blocks("tool_use", U, *answered, *answered)
    assert first["id"] == "c1" != second["id"]


def test_an_error_without_a_text_gets_one_for_anthropic() -> None:
    failed = ToolCallResponsePart.model_validate({"id": "c1", "response": "", "is_error": True})
    block = anthropic_blocks("tool_result", U, Message.assistant([call("c1")]), Message.tool([failed]))[0]
    assert (block["is_error"], block["content"]) == (True, "[empty result]")


@BOTH
def test_a_second_result_does_not_go_to_an_older_call_that_was_never_answered(results: Any) -> None:
    answered = [Message.assistant([call("c1")]), Message.tool("x", id="c1"), Message.tool("y", id="c1")]
    assert results(U, Message.assistant([call("c1")]), U, *answered) == [INTERRUPTED, "y"]


def test_results_belong_to_the_calls_of_their_own_branch() -> None:
    told = [
        event(0, U),
        event(1, Message.assistant([call("c1")])),
        event(2, Message.assistant([call("c1")]), branch="search"),
        event(3, Message.tool("root", id="c1")),
        event(4, Message.tool("search", id="c1"), branch="search"),
    ]
    wire = openai_chat.request(View(tuple(told)), model="m", branch="search")["messages"]
    assert [one["content"] for one in wire if one["role"] == "tool"] == ["root", "search"]


# Texts and roles


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_answer_is_left_out_and_its_neighbours_are_joined(empty: str) -> None:
    told = [U, Message.assistant(empty), Message.user("Hello?")]
    assert openai(*told) == [
        {"role": "user", "content": "Where is it?"},
        {"role": "user", "content": "Hello?"},
    ]
    assert anthropic(*told) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Where is it?"}, {"type": "text", "text": "Hello?"}],
        }
    ]


def test_an_empty_text_beside_calls_is_left_out() -> None:
    asked = Message.assistant([TextPart(content=""), call("c1")])
    assert openai(U, asked)[1]["content"] is None
    assert [block["type"] for block in anthropic(U, asked)[1]["content"]] == ["tool_use"]


def test_a_request_to_anthropic_starts_with_a_user_and_has_max_tokens() -> None:
    body = anthropic_messages.request([Message.assistant("Hello."), U], model="a-model")
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "user"]
    assert body["max_tokens"] == 4096


def test_an_empty_view_makes_a_request_nevertheless() -> None:
    assert [one["role"] for one in openai_chat.request(View(), model="m")["messages"]] == ["user"]
    assert [one["role"] for one in anthropic_messages.request(View(), model="m")["messages"]] == ["user"]


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_a_request_that_ends_with_the_assistant_gives_a_warning(module: Any) -> None:
    with pytest.warns(PrefillWarning, match="prefill=True"):
        body = module.request([U, Message.assistant("It is")], model="m")
    assert body["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_a_prefill_that_is_meant_gives_no_warning(module: Any) -> None:
    assert module.request([U, Message.assistant("It is")], model="m", prefill=True)


def test_a_prefill_of_anthropic_does_not_end_with_white_space() -> None:
    assert anthropic(U, Message.assistant("It is "), prefill=True)[-1]["content"][0]["text"] == "It is"


def test_an_empty_result_gets_a_text_for_openai() -> None:
    assert openai_results(U, Message.assistant([call("c1")]), Message.tool("", id="c1")) == ["[empty result]"]


def test_lone_surrogates_become_replacement_characters() -> None:
    assert openai(Message.user("a\ud800b\U0001f600")) == [{"role": "user", "content": "a�b\U0001f600"}]


# Instructions and summaries


SYSTEMS: Sequence[SessionEvent] = (
    event(0, Message.system("Be brief.")),
    event(1, Message.system("So far: a parcel is lost."), synthetic=True),
    event(2, U),
    event(3, Message.system("Be kind.")),
    event(4, Message.system("You search."), branch="search"),
)


def test_the_latest_instructions_and_the_summaries_are_one_system_message_in_front() -> None:
    told = openai_chat.request(View(tuple(SYSTEMS)), model="m")["messages"]
    assert told == [
        {"role": "system", "content": "So far: a parcel is lost.\n\nBe kind."},
        {"role": "user", "content": "Where is it?"},
    ]


def test_instructions_of_anthropic_stand_beside_the_messages() -> None:
    body = anthropic_messages.request(View(tuple(SYSTEMS)), model="m", branch="search")
    assert [block["text"] for block in body["system"]] == [
        "So far: a parcel is lost.",
        "Be kind.",
        "You search.",
    ]
    assert [one["role"] for one in body["messages"]] == ["user"]


@pytest.mark.parametrize("module", [openai_chat, anthropic_messages])
def test_given_instructions_take_the_place_of_the_stored_ones(module: Any) -> None:
    body = str(module.request(SYSTEMS, model="m", system="Be exact."))
    assert ("Be exact." in body, "a parcel is lost" in body, "Be kind." in body) == (True, True, False)


def test_a_summary_by_the_user_is_joined_with_the_next_question_where_roles_must_alternate() -> None:
    summary = event(0, Message.user("So far: a parcel."), synthetic=True)
    assert openai(summary, U, alternate=True) == [
        {"role": "user", "content": "So far: a parcel.\n\nWhere is it?"}
    ]
    assert [one["role"] for one in anthropic(summary, U)] == ["user"]


# Reasoning

THOUGHT: Mapping[str, Any] = {"type": "thinking", "thinking": "Lund?", "signature": "c2ln"}


def test_thinking_goes_back_to_anthropic_as_it_came() -> None:
    came = anthropic_messages.message(
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Lund."}]}
    )
    assert anthropic_blocks("thinking", U, came, U) == [THOUGHT]


def test_thinking_of_another_provider_does_not_go_to_anthropic() -> None:
    came = openai_chat.message({"role": "assistant", "reasoning_content": "Lund?", "content": "Lund."})
    assert [block["type"] for block in anthropic(U, came, U)[1]["content"]] == ["text"]


def test_thinking_of_anthropic_does_not_go_to_openai() -> None:
    came = anthropic_messages.message(
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Lund."}]}
    )
    assert openai(U, came, U)[1] == {"role": "assistant", "content": "Lund."}


@pytest.mark.parametrize(
    ("signature", "origin"),
    [("", anthropic_messages.ORIGIN), (None, anthropic_messages.ORIGIN), ("c2ln", None)],
)
def test_thinking_without_signature_or_origin_is_left_out(signature: str | None, origin: str | None) -> None:
    thought = ReasoningPart.model_validate({"content": "Lund?", "signature": signature})
    told = Message.assistant([thought, TextPart(content="Lund.")], origin=origin)
    assert anthropic_blocks("thinking", U, told, U) == []


def test_thinking_is_left_out_with_the_answer_that_it_belongs_to() -> None:
    alone = anthropic_messages.message({"role": "assistant", "content": [THOUGHT]})
    assert [one["role"] for one in anthropic(U, alone, U)] == ["user"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_of_an_openai_server_goes_back_under_its_name_unless_not_wanted(field: str) -> None:
    came = openai_chat.message({"role": "assistant", field: "Lund?", "content": "Lund."})
    assert openai(U, came, U)[1] == {"role": "assistant", field: "Lund?", "content": "Lund."}
    assert openai(U, came, U, reasoning=False)[1] == {"role": "assistant", "content": "Lund."}


def test_calls_that_anthropic_ran_itself_go_back_to_it_only() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Lund"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "text": "Lund."},
    ]
    came = anthropic_messages.message({"role": "assistant", "content": blocks})
    assert anthropic(U, came, U)[1]["content"] == blocks
    assert anthropic(U, Message.assistant(came.parts), U)[1]["content"] == blocks[2:]
    assert openai(U, came, U)[1] == {"role": "assistant", "content": "Lund."}


def test_a_call_that_anthropic_ran_goes_back_once_where_its_message_is_there_twice() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "text": "Lund."},
    ]
    came = anthropic_messages.message({"role": "assistant", "content": blocks})
    assert anthropic(U, came, U, came, U)[3]["content"] == blocks[2:]


def test_a_call_that_anthropic_has_not_finished_is_told_only_at_the_end() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "I search."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
    ]
    came = anthropic_messages.message({"role": "assistant", "content": blocks})
    assert anthropic(U, came, prefill=True)[-1]["content"] == blocks
    assert anthropic(U, came, U)[1]["content"] == blocks[:1]


# Media


def test_an_image_is_sent_with_the_type_of_its_bytes() -> None:
    lying = Message.user([BlobPart(modality="image", mime_type="image/jpeg", content=PNG)])
    assert anthropic(lying)[0]["content"][0]["source"]["media_type"] == "image/png"
    assert openai(lying)[0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")


def test_an_image_of_openai_goes_to_anthropic() -> None:
    url = f"data:image/png;base64,{PNG}"
    came = openai_chat.message(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    )
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    assert anthropic(came)[0]["content"] == [{"type": "image", "source": source}]


def test_an_image_address_of_anthropic_goes_to_openai() -> None:
    source = {"type": "url", "url": "https://example.com/a.png"}
    came = anthropic_messages.message({"role": "user", "content": [{"type": "image", "source": source}]})
    assert openai(came)[0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    ]


def test_a_pdf_goes_both_ways() -> None:
    pdf = BlobPart(modality="document", mime_type="application/pdf", content="JVBERi0xLjQ=")
    assert openai(Message.user([pdf]))[0]["content"][0]["file"]["filename"] == "document.pdf"
    assert anthropic(Message.user([pdf]))[0]["content"][0]["source"]["media_type"] == "application/pdf"


def test_a_document_of_text_is_sent_as_its_text_to_openai() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "All parcels."}
    came = anthropic_messages.message({"role": "user", "content": [{"type": "document", "source": source}]})
    assert openai(came) == [{"role": "user", "content": "All parcels."}]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (BlobPart(modality="video", mime_type="video/mp4", content="AAAA"), "[video video/mp4]"),
        (BlobPart(modality="image", mime_type="image/png", content="no base64!"), "[image image/png]"),
        (BlobPart(modality="image", mime_type="image/png", content=f"{PNG}!"), "[image image/png]"),
        (UriPart(modality="image", uri="gs://bucket/a.png"), "[image gs://bucket/a.png]"),
        (GenericPart(type="widget"), "[widget]"),
    ],
)
def test_what_a_provider_cannot_take_is_named_in_a_text(part: Any, text: str) -> None:
    assert openai(Message.user([part])) == [{"role": "user", "content": text}]
    assert anthropic(Message.user([part]))[0]["content"] == [{"type": "text", "text": text}]


def test_a_file_goes_only_to_the_provider_that_holds_it() -> None:
    file = FilePart(modality="document", file_id="file-1")
    by_openai = Message.user([file], origin=openai_chat.ORIGIN)
    assert openai(by_openai)[0]["content"] == [{"type": "file", "file": {"file_id": "file-1"}}]
    assert anthropic(by_openai)[0]["content"] == [{"type": "text", "text": "[document file-1]"}]
    by_anthropic = Message.user([file], origin=anthropic_messages.ORIGIN)
    assert anthropic(by_anthropic)[0]["content"][0]["source"] == {"type": "file", "file_id": "file-1"}
    assert openai(by_anthropic)[0]["content"] == "[document file-1]"


def test_line_breaks_in_the_base64_of_an_image_are_taken_out() -> None:
    broken = Message.user(
        [BlobPart(modality="image", mime_type="image/png", content=f"{PNG[:40]}\n{PNG[40:]}")]
    )
    assert anthropic(broken)[0]["content"][0]["source"]["data"] == PNG


def test_several_texts_stay_several_parts() -> None:
    told = openai(Message.user([TextPart(content="a"), TextPart(content="b")]))
    assert told[0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_what_an_assistant_said_in_sound_is_told_as_its_transcript() -> None:
    audio = {"id": "a1", "data": "UklGRg==", "expires_at": 9, "transcript": "In Lund."}
    came = openai_chat.message({"role": "assistant", "content": None, "audio": audio})
    assert openai(U, came, U)[1] == {"role": "assistant", "content": "In Lund."}


def test_a_citation_goes_back_without_the_field_that_requests_do_not_have() -> None:
    cited = {"type": "char_location", "cited_text": "Lund", "document_index": 0, "document_title": None}
    cited |= {"start_char_index": 0, "end_char_index": 4}
    raw = {"type": "text", "text": "Lund.", "citations": [{**cited, "file_id": None}]}
    came = anthropic_messages.message({"role": "assistant", "content": [raw]})
    assert anthropic(U, came, U)[1]["content"] == [{"type": "text", "text": "Lund.", "citations": [cited]}]


def test_who_called_a_tool_is_kept_for_the_provider_that_said_so() -> None:
    raw = {"type": "tool_use", "id": "c1", "name": "find", "input": {}, "caller": {"type": "direct"}}
    came = anthropic_messages.message({"role": "assistant", "content": [raw]})
    assert anthropic(U, came)[1]["content"] == [raw]


def test_marks_of_tools_count_among_the_four() -> None:
    marked = TextPart.model_validate({"content": "Hello.", "cache_control": {"type": "ephemeral"}})
    tool = {"name": "find", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}
    told = anthropic(Message.user([marked] * 4), tools=[tool], cache_control=True)
    assert ["cache_control" in block for block in told[0]["content"]] == [False, True, True, True]


def test_making_a_request_changes_no_message() -> None:
    searched = {"type": "text", "text": "Lund", "cache_control": {"type": "ephemeral"}}
    blocks: list[dict[str, Any]] = [
        {"type": "mcp_tool_use", "id": "s1", "name": "find", "server_name": "post", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "s1", "is_error": False, "content": [searched]},
        {"type": "text", "text": "Lund."},
    ]
    came = anthropic_messages.message({"role": "assistant", "content": blocks})
    anthropic(U, came, U)
    assert anthropic_messages.export([came])[0]["content"] == blocks


# Options


def test_cache_marks_are_kept_and_only_sent_when_asked() -> None:
    marked = {"type": "text", "text": "Hello.", "cache_control": {"type": "ephemeral"}}
    came = anthropic_messages.message({"role": "user", "content": [marked]})
    assert anthropic(came)[0]["content"] == [{"type": "text", "text": "Hello."}]
    assert anthropic(came, cache_control=True)[0]["content"] == [marked]


def test_at_most_four_cache_marks_are_sent_the_newest() -> None:
    marked = TextPart.model_validate({"content": "Hello.", "cache_control": {"type": "ephemeral"}})
    blocks = anthropic(*(Message.user([marked]) for _ in range(6)), cache_control=True)[0]["content"]
    assert ["cache_control" in block for block in blocks] == [False, False, True, True, True, True]


def test_neutral_tools_take_the_form_of_the_provider() -> None:
    tool: dict[str, Any] = {
        "name": "find",
        "description": "Finds.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert openai_chat.request([U], model="m", tools=[tool])["tools"] == [
        {"type": "function", "function": tool}
    ]
    assert anthropic_messages.request([U], model="m", tools=[tool])["tools"] == [
        {"name": "find", "description": "Finds.", "input_schema": tool["parameters"]}
    ]


def test_further_options_are_passed_on() -> None:
    body = openai_chat.request([U], model="m", max_tokens=9, temperature=0.5)
    assert (body["max_completion_tokens"], body["temperature"]) == (9, 0.5)
