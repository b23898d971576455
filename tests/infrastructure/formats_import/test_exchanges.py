"""Recorded API calls become conversations: a request and its answer are the history so far."""

from __future__ import annotations

from typing import Any

from tests.infrastructure.formats_import.conftest import WriteFile, messages_of, said, sessions_of

from turnlog.domain.attributes import SessionAttributes
from turnlog.infrastructure.formats.imported import Fate
from turnlog.infrastructure.formats.importing import read_file

Json = dict[str, Any]

OPENAI = "https://api.openai.com/v1/chat/completions"
ANTHROPIC = "https://api.anthropic.com/v1/messages"

LUND = {"role": "user", "content": "Where is Lund?"}
SWEDEN = {"role": "assistant", "content": "In Sweden."}
OSLO = {"role": "user", "content": "And Oslo?"}
NORWAY = {"role": "assistant", "content": "In Norway."}


def openai(*messages: Json, answers: Json | list[Json], status: int = 200) -> Json:
    given = answers if isinstance(answers, list) else [answers]
    choices = [{"index": i, "message": one, "finish_reason": "stop"} for i, one in enumerate(given)]
    response = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "gpt-x-2024", "choices": choices}
    request = {"model": "gpt-x", "messages": list(messages)}
    return {"url": OPENAI, "status": status, "request": request, "response": response}


def anthropic(*messages: Json, answer: list[Json], system: str | None = None) -> Json:
    request = {"model": "claude-x", "max_tokens": 9, "messages": list(messages)}
    if system is not None:
        request["system"] = system
    response = {"id": "msg_1", "type": "message", "role": "assistant", "content": answer}
    return {"url": ANTHROPIC, "status": 200, "request": request, "response": response}


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def test_an_exchange_that_continues_the_one_before_adds_what_is_new(write_file: WriteFile) -> None:
    path = write_file(
        {"exchanges": [openai(LUND, answers=SWEDEN), openai(LUND, SWEDEN, OSLO, answers=NORWAY)]}
    )
    (session,) = sessions_of(path)
    assert said(session) == [
        ("user", "Where is Lund?"),
        ("assistant", "In Sweden."),
        ("user", "And Oslo?"),
        ("assistant", "In Norway."),
    ]


def test_an_exchange_that_does_not_continue_the_one_before_starts_another_session(
    write_file: WriteFile,
) -> None:
    path = write_file({"exchanges": [openai(LUND, answers=SWEDEN), openai(OSLO, answers=NORWAY)]})
    assert [said(session)[0][1] for session in sessions_of(path)] == ["Where is Lund?", "And Oslo?"]


def test_a_request_that_goes_on_behind_another_answer_starts_another_session(write_file: WriteFile) -> None:
    path = write_file(
        {"exchanges": [openai(LUND, answers=SWEDEN), openai(LUND, NORWAY, OSLO, answers=NORWAY)]}
    )
    assert [len(messages_of(session)) for session in sessions_of(path)] == [2, 4]


def test_a_request_that_was_sent_again_starts_another_session(write_file: WriteFile) -> None:
    path = write_file({"exchanges": [openai(LUND, answers=SWEDEN), openai(LUND, answers=NORWAY)]})
    assert [said(session)[-1][1] for session in sessions_of(path)] == ["In Sweden.", "In Norway."]


def test_a_failed_exchange_is_skipped_and_counted(write_file: WriteFile) -> None:
    failed = openai(LUND, answers=SWEDEN, status=429)
    path = write_file({"exchanges": [failed, openai(LUND, answers=NORWAY)]})
    assert [said(session)[-1][1] for session in sessions_of(path)] == ["In Norway."]
    assert read_file(path).report.of(Fate.DROPPED)["failed exchanges"] == 1


def test_an_exchange_without_a_response_is_skipped_and_counted(write_file: WriteFile) -> None:
    unanswered = {**openai(LUND, answers=SWEDEN), "response": None}
    path = write_file({"exchanges": [openai(LUND, answers=SWEDEN), unanswered]})
    assert len(sessions_of(path)) == 1
    assert read_file(path).report.of(Fate.DROPPED)["failed exchanges"] == 1


def test_an_answer_is_known_again_in_the_form_that_a_client_gives_it(write_file: WriteFile) -> None:
    given = {"role": "assistant", "content": "In Sweden.", "reasoning_content": "Skåne.", "refusal": None}
    sent_back = {"role": "assistant", "content": "<think>\nSkåne.\n</think>\n\nIn Sweden."}
    path = write_file(
        {"exchanges": [openai(LUND, answers=given), openai(LUND, sent_back, OSLO, answers=NORWAY)]}
    )
    (session,) = sessions_of(path)
    assert [message.text for message in messages_of(session)][1] == "In Sweden."


def test_a_call_is_known_again_by_its_name_and_arguments(write_file: WriteFile) -> None:
    function = {"name": "find", "arguments": '{"q": "Lund", "n": 1}'}
    call = {"id": "c1", "type": "function", "function": function}
    resent = {"id": "c1", "type": "function", "function": {**function, "arguments": '{"n":1,"q":"Lund"}'}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "55.7 N"}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    asked_again = {"role": "assistant", "content": "", "tool_calls": [resent]}
    path = write_file(
        {"exchanges": [openai(LUND, answers=asked), openai(LUND, asked_again, result, answers=SWEDEN)]}
    )
    (session,) = sessions_of(path)
    assert messages_of(session)[1].tool_calls[0].arguments == '{"q": "Lund", "n": 1}'


def test_of_several_answers_the_one_that_the_conversation_went_on_with_is_taken(
    write_file: WriteFile,
) -> None:
    path = write_file(
        {
            "exchanges": [
                openai(LUND, answers=[NORWAY, SWEDEN]),
                openai(LUND, SWEDEN, OSLO, answers=NORWAY),
            ]
        }
    )
    (session,) = sessions_of(path)
    assert said(session)[1] == ("assistant", "In Sweden.")


def test_the_other_answers_are_kept_outside_the_conversation(write_file: WriteFile) -> None:
    path = write_file({"exchanges": [openai(LUND, answers=[NORWAY, SWEDEN])]})
    (session,) = sessions_of(path)
    kept = [event.payload for event in session.events if event.type == "OPENAI_CHAT.CHOICE"]
    assert kept == [{"index": 1, "message": SWEDEN, "finish_reason": "stop"}]


def test_an_answer_knows_its_model_and_its_time(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file({"exchanges": [openai(LUND, answers=SWEDEN)]}))
    answer = session.events[-1]
    assert answer.message is not None
    assert answer.message.metadata == {"id": "chatcmpl-1", "model": "gpt-x-2024", "finish_reason": "stop"}
    assert answer.occurred_at is not None
    assert answer.occurred_at.isoformat() == "2023-11-14T22:13:20+00:00"


def test_the_model_that_was_asked_is_metadata_of_the_session(write_file: WriteFile) -> None:
    (session,) = sessions_of(write_file({"exchanges": [openai(LUND, answers=SWEDEN)]}))
    assert session.metadata == {SessionAttributes.MODEL: "gpt-x"}


def test_instructions_beside_the_messages_become_a_system_message(write_file: WriteFile) -> None:
    path = write_file({"exchanges": [anthropic(LUND, answer=[text("In Sweden.")], system="Be brief.")]})
    (session,) = sessions_of(path)
    assert said(session)[0] == ("system", "Be brief.")


def test_unchanged_instructions_are_not_repeated(write_file: WriteFile) -> None:
    first = anthropic(LUND, answer=[text("In Sweden.")], system="Be brief.")
    second = anthropic(LUND, SWEDEN, OSLO, answer=[text("In Norway.")], system="Be brief.")
    (session,) = sessions_of(write_file({"exchanges": [first, second]}))
    assert [role for role, _ in said(session)].count("system") == 1


def test_changed_instructions_are_appended_where_they_changed(write_file: WriteFile) -> None:
    first = anthropic(LUND, answer=[text("In Sweden.")], system="Be brief.")
    second = anthropic(LUND, SWEDEN, OSLO, answer=[text("In Norway.")], system="Be kind.")
    (session,) = sessions_of(write_file({"exchanges": [first, second]}))
    assert said(session)[1:4] == [
        ("user", "Where is Lund?"),
        ("assistant", "In Sweden."),
        ("system", "Be kind."),
    ]


BRIEF = {"role": "system", "content": "Be brief."}
KIND = {"role": "developer", "content": "Be kind."}


def test_system_messages_in_a_row_are_one_message_and_the_conversation_goes_on(write_file: WriteFile) -> None:
    first = openai(BRIEF, KIND, LUND, answers=SWEDEN)
    second = openai(BRIEF, KIND, LUND, SWEDEN, OSLO, answers=NORWAY)
    (session,) = sessions_of(write_file({"exchanges": [first, second]}))
    assert said(session)[:2] == [("system", "Be brief.\nBe kind."), ("user", "Where is Lund?")]


def test_instructions_that_replace_earlier_ones_are_reported(write_file: WriteFile) -> None:
    first = openai(BRIEF, LUND, answers=SWEDEN)
    second = openai(BRIEF, LUND, SWEDEN, KIND, OSLO, answers=NORWAY)
    report = read_file(write_file({"exchanges": [first, second]})).report
    assert "noted: 1 later system message in place of earlier instructions" in report.lines()


def test_a_moved_cache_mark_does_not_break_a_conversation(write_file: WriteFile) -> None:
    marked = {"role": "user", "content": [{**text("Where is Lund?"), "cache_control": {"type": "ephemeral"}}]}
    plain = {"role": "user", "content": [text("Where is Lund?")]}
    first = anthropic(marked, answer=[text("In Sweden.")])
    second = anthropic(plain, SWEDEN, OSLO, answer=[text("In Norway.")])
    assert len(sessions_of(write_file({"exchanges": [first, second]}))) == 1


def test_a_user_message_that_mixes_results_and_text_is_taken_apart(write_file: WriteFile) -> None:
    call: Json = {"type": "tool_use", "id": "t1", "name": "find", "input": {}}
    mixed = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "55.7 N"}, text("Thanks!")],
    }
    first = anthropic(LUND, answer=[call])
    second = anthropic(LUND, {"role": "assistant", "content": [call]}, mixed, answer=[text("Welcome.")])
    (session,) = sessions_of(write_file({"exchanges": [first, second]}))
    assert [role for role, _ in said(session)] == ["user", "assistant", "tool", "user", "assistant"]


def test_exchanges_with_another_api_are_skipped_and_counted(write_file: WriteFile) -> None:
    path = write_file(
        {"exchanges": [openai(LUND, answers=SWEDEN), anthropic(OSLO, answer=[text("In Norway.")])]}
    )
    assert len(sessions_of(path)) == 1
    assert read_file(path).report.of(Fate.DROPPED)["exchanges with another API"] == 1
