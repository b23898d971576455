"""Values that JSON or Python can hardly say: lossless, or refused by name, and nothing half-written."""

from __future__ import annotations

import pickle
from copy import deepcopy
from datetime import timedelta
from types import MappingProxyType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.application import SessionService
from turnlog.domain.archive import RecursiveSummarizationCompactionStrategy
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.errors import (
    InvalidEventError,
    InvalidIdError,
    InvalidMessageError,
    InvalidPartError,
    InvalidSettingError,
    NotJsonError,
    VersionConflictError,
)
from turnlog.domain.extractive import ExtractiveSummarizer
from turnlog.domain.json_text import from_json_text, to_json_text
from turnlog.domain.messages import Message, Role, ToolCallPart, ToolCallResponsePart
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

PAIR = "\ud83d" + "\ude00"
"""Two code points that JSON's escapes would make one character of."""


@given(st.text(alphabet=st.sampled_from(["\ud83d", "\ude00", "a", '"', "\\", "🙂", "\0"])))
def test_surrogates_side_by_side_come_back_as_they_were(text: str) -> None:
    assert from_json_text(to_json_text({text: [text]})) == {text: [text]}


def test_a_message_with_a_pair_of_surrogates_is_a_repeat_of_itself() -> None:
    with SessionService() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user(PAIR), event_id="x")
        assert sessions.view("s").messages[0].text == PAIR
        assert not sessions.append_message("s", Message.user(PAIR), event_id="x").differs


UNSAYABLE = {
    "huge": 10**5000,
    "huge and negative": -(10**5000),
    "no dict": MappingProxyType({"a": 1}),
    "tuple": (1,),
    "set": {1},
    "bytes": b"x",
}


@pytest.mark.parametrize("value", UNSAYABLE.values(), ids=UNSAYABLE.keys())
def test_what_json_cannot_hold_is_refused_with_its_place(value: object) -> None:
    with SessionService() as sessions:
        sessions.create("s")
        with pytest.raises(NotJsonError, match=r"payload\.v"):
            sessions.append_event("s", "A.B", {"v": value})
        assert sessions.version("s") == 0


@pytest.mark.parametrize("payload", [[], [1], ["ab"], [("a", 1)], "", "x", 0, False])
def test_a_payload_that_is_no_object_is_refused(payload: object) -> None:
    with SessionService() as sessions:
        sessions.create("s")
        with pytest.raises(InvalidEventError, match="mapping"):
            sessions.append_event("s", "A.B", cast("Any", payload))
        assert sessions.version("s") == 0


@pytest.mark.parametrize("shadow_prompt", [None, 5, ["x"], " "])
def test_a_shadow_prompt_that_is_no_text_is_refused(shadow_prompt: Any) -> None:
    with pytest.raises(InvalidSettingError, match="shadow prompt"):
        RecursiveSummarizationCompactionStrategy(lambda _: "x", shadow_prompt=shadow_prompt)
    with pytest.raises(InvalidSettingError, match="shadow prompt"):
        ExtractiveSummarizer(shadow_prompt=shadow_prompt)


@pytest.mark.parametrize("given_", ["hello", 5, None, {"role": "user"}])
def test_what_is_no_message_is_refused_with_a_word_what_to_do(given_: object) -> None:
    with SessionService() as sessions:
        sessions.create("s")
        with pytest.raises(InvalidEventError, match=r"message"):
            sessions.append_message("s", cast("Any", given_))
        with pytest.raises(InvalidEventError, match=r"event|Event|message"):
            sessions.append_events("s", [cast("Any", given_)])


def test_what_a_view_holds_cannot_be_changed_in_place() -> None:
    with SessionService() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("x", metadata={"cost": [1]}, note={"a": [1]}))
        message: Any = sessions.view("s").messages[0]
        with pytest.raises(TypeError, match="read-only"):
            message.metadata["evil"] = 1
        with pytest.raises(TypeError, match="read-only"):
            message.metadata["cost"].append(2)
        with pytest.raises(TypeError, match="read-only"):
            message.extra["note"]["a"].clear()
        own = deepcopy(message.metadata)
        own["cost"].append(2)
        assert sessions.view("s").messages[0].metadata == {"cost": [1]}


@pytest.mark.parametrize("context", [{"actor": "ada"}, {}], ids=["some", "none"])
def test_the_context_of_an_event_cannot_be_changed_in_place(context: dict[str, str]) -> None:
    with SessionService() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("x"), context=context)
        sessions.append_event("s", "A.B", {}, context=context)
        for event in cast("list[Any]", sessions.get_events("s")):
            with pytest.raises(TypeError, match="read-only"):
                event.context["actor"] = "eve"
            own = deepcopy(event.context)
            own["actor"] = "eve"
        assert [event.context for event in sessions.get_events("s")] == [context, context]


def test_an_abandoned_call_cannot_be_changed_in_place() -> None:
    with SessionService() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("x"))
        call = Message.assistant([ToolCallPart(id="c", name="ask", awaiting=True)])
        asked = sessions.append_message("s", call)
        sessions.abandon("s", asked.id, "c")
        abandoned: Any = sessions.get_events("s")[-1]
        with pytest.raises(TypeError, match="read-only"):
            abandoned.payload["call_id"] = "d"


def test_errors_come_through_pickle_as_they_were() -> None:
    error = VersionConflictError("s", 3, 4)
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(back), back.expected, type(back)) == (str(error), 3, VersionConflictError)


@pytest.mark.parametrize("answer", ["text", Message.user("x"), {"a": 1}, [Message.user("x"), "y"]])
def test_a_summarizer_that_returns_no_messages_is_told_so(answer: object) -> None:
    with SessionService() as sessions:
        sessions.create("s")
        sessions.append_events("s", [Message.user("1"), Message.user("2")])
        window = CompactionWindow.last_turns(1)
        with pytest.raises(InvalidSettingError, match="summarizer returns"):
            sessions.compact("s", None, WindowCompactionStrategy(window, _Answers(answer)))
        assert sessions.version("s") == 2


class _Answers:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def summarize(self, request: SummaryRequest) -> Any:  # noqa: ARG002 - the port's argument
        return self._answer


@pytest.mark.parametrize("also", ["x", 5, [5], ["x"], (Message.user("x"),)])
def test_what_is_no_aggregate_is_not_saved_along(also: object) -> None:
    with SessionService() as sessions:
        sessions.create("s")
        with pytest.raises(InvalidSettingError, match="also"):
            sessions.append_message("s", Message.user("x"), also=cast("Any", also))
        assert sessions.version("s") == 0


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Message, {"role": Role.USER, "content": "x"}),
        (Message, {"role": Role.USER, "text": "x"}),
        (ToolCallResponsePart, {"id": "c", "result": "42"}),
        (ToolCallResponsePart, {"id": "c", "output": "42"}),
    ],
)
def test_a_field_that_only_looks_right_is_refused(model: Any, fields: dict[str, Any]) -> None:
    with pytest.raises((InvalidMessageError, InvalidPartError), match="use"):
        model(**fields)


def test_calls_are_marked_as_awaiting_on_a_copy() -> None:
    calls = [ToolCallPart(id="a", name="f"), ToolCallPart(id="b", name="g")]
    message = Message.assistant(calls)
    assert [call.awaiting for call in message.awaiting("b").tool_calls] == [False, True]
    assert [call.awaiting for call in message.awaiting().tool_calls] == [True, True]
    assert not any(call.awaiting for call in message.tool_calls)
    with pytest.raises(InvalidMessageError, match="no call"):
        message.awaiting("c")


@pytest.mark.parametrize("span", [timedelta.max, timedelta.min])
def test_spans_that_leave_the_calendar_are_refused(span: timedelta) -> None:
    with SessionService() as sessions:
        with pytest.raises(InvalidSettingError):
            sessions.create("s", time_to_live=span)
        with pytest.raises(InvalidSettingError):
            sessions.create("s", idle=span)


def test_an_event_id_that_cannot_be_one_is_refused() -> None:
    with SessionService() as sessions:
        sessions.create("s")
        with pytest.raises(InvalidIdError):
            sessions.get_event("s", "\ud800")
        with pytest.raises(InvalidIdError):
            sessions.abandon("s", "\ud800", "call")


def test_a_version_that_is_no_number_is_refused() -> None:
    with SessionService() as sessions:
        sessions.create("s")
        with pytest.raises(InvalidSettingError, match="at_version"):
            sessions.view("s", at_version=cast("Any", "3"))
