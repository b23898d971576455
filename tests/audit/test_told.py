"""Every call comes back byte for byte, from the log alone."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.calls import FIND, USAGE, Asked, ScriptedChat
from tests.audit.conftest import SID
from tests.audit.logs import WordCount, compact, say_turns
from tests.audit.renderers import RENDERERS
from tests.laws.profiles import effort

from turnlog.application.audit import (
    InvalidPromptError,
    Price,
    PromptMismatchError,
    PromptRecorder,
    SessionAudit,
    UnknownCallError,
    UnknownRendererError,
)
from turnlog.application.service import SessionService
from turnlog.domain.errors import InvalidEventError, UnknownEventError
from turnlog.domain.filters import EventFilter
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message, Role

TEXTS = st.sampled_from(
    ["hi", "where is it?", "a text that is long enough to be shortened", "é \0 \ud800 🙂"]
)
FILTERS = st.sampled_from(
    [None, EventFilter(last_n=3), EventFilter(roles=(Role.USER,)), EventFilter(exclude_synthetic=True)]
)
ASKED = st.builds(
    Asked,
    renderer=st.sampled_from(sorted(RENDERERS)),
    system=st.none() | TEXTS,
    beside=st.none() | TEXTS,
    aside=st.none() | TEXTS,
    shortens=st.booleans(),
    filter=FILTERS,
    tools=st.sampled_from([(), (FIND,)]),
    stream=st.booleans(),
    adaptations=st.sampled_from([(), ("alternate",)]),
    profile=st.sampled_from([{}, {"server": "other"}]),
    options=st.sampled_from([{}, {"temperature": 0.5}, {"stop": ["\n", "é"]}]),
    branch=st.sampled_from([None, "find"]),
)
STEPS = st.lists(
    st.tuples(st.just("say"), TEXTS, ASKED, st.sampled_from([(), ("alternate",), ("alternate", "x")]))
    | st.tuples(st.sampled_from(["compact", "cut", "note", "system", "metadata"])),
    min_size=1,
    max_size=12,
)


@pytest.fixture
def chat(sessions: SessionService) -> ScriptedChat:
    """A scripted chat that records."""
    return ScriptedChat(sessions, SID, PromptRecorder(sessions, renderers=RENDERERS))


def _do(sessions: SessionService, chat: ScriptedChat, step: Any) -> None:
    match step[0]:
        case "say":
            chat.say(step[1], step[2], resends=step[3])
        case "compact":
            compact(sessions, SID)
        case "cut":
            compact(sessions, SID, summarized=False)
        case "note":
            sessions.append_event(SID, "ACME.NOTE", {"a": 1})
        case "system":
            sessions.append_message(SID, Message.system("Be kind."))
        case _:
            sessions.update_metadata(SID, {"title": "x"})


@effort(80, 800)
@given(STEPS)
def test_every_call_comes_back_byte_for_byte(steps: list[Any]) -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        sessions.create(SID)
        chat = ScriptedChat(sessions, SID, PromptRecorder(sessions, renderers=RENDERERS))
        for step in steps:
            _do(sessions, chat, step)
        compact(sessions, SID)
        audit = SessionAudit(sessions, renderers=RENDERERS)
        told = {key: audit.told(SID, key[0], attempt=key[1]).body for key in chat.sent}
        assert told == chat.sent
        assert not any("literal" in (event.payload or {}) for event in sessions.get_events(SID))


def _written(body: dict[str, Any], form: str) -> bytes:
    """The body as some library might write it."""
    match form:
        case "default":
            return json.dumps(body).encode()
        case "utf-8":
            return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        case "compact":
            return json.dumps(body, separators=(",", ":")).encode()
        case "indented":
            return json.dumps(body, indent=2).encode()
        case "no JSON":
            return b"\xff not JSON at all"
        case _:
            return b""


FORMS = st.sampled_from(["default", "utf-8", "compact", "indented", "no JSON", "empty"])


@effort(50, 400)
@given(st.lists(st.tuples(TEXTS, FORMS, st.booleans()), min_size=1, max_size=6))
def test_a_body_that_an_application_made_comes_back_byte_for_byte(steps: list[Any]) -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        sessions.create(SID)
        audit = SessionAudit(sessions, renderers=RENDERERS)
        sent: dict[str, bytes] = {}
        for text, form, compacts in steps:
            told = [*sessions.view(SID).messages, Message.user(text)]
            messages = [{"role": one.role.value, "content": one.text} for one in told]
            body = _written({"model": "m", "messages": messages, "tools": [{"name": "find"}]}, form)
            call_id = audit.record_prompt(SID, body=body, append=[Message.user(text)])
            audit.record_reply(SID, call_id, append=[Message.assistant("ok")])
            sent[call_id] = body
            if compacts:
                compact(sessions, SID)
        assert {call_id: audit.told(SID, call_id).body for call_id in sent} == sent


def test_a_prompt_does_not_grow_with_the_view(sessions: SessionService, chat: ScriptedChat) -> None:
    sizes: list[int] = []
    for length in (5, 50):
        say_turns(sessions, SID, length * 10, length)
        call_id = chat.say("hi", Asked(system="Be kind.", tools=(FIND,), beside="Today is Monday."))
        sizes.append(len(json.dumps(dict(sessions.get_event(SID, call_id).payload or {}))))
    assert sizes[1] - sizes[0] < 20


def test_the_prompt_of_an_application_does_not_grow_with_the_view(
    sessions: SessionService, audit: SessionAudit
) -> None:
    sizes: list[int] = []
    for length in (5, 50):
        say_turns(sessions, SID, length * 10, length)
        told = [*sessions.view(SID).messages, Message.user("hm?")]
        body = {"model": "m", "messages": [{"role": one.role.value, "content": one.text} for one in told]}
        call_id = audit.record_prompt(SID, body=json.dumps(body).encode(), append=[Message.user("hm?")])
        sizes.append(len(json.dumps(dict(sessions.get_event(SID, call_id).payload or {}))))
    assert sizes[1] - sizes[0] < 20


def test_system_text_and_tools_are_stored_once(sessions: SessionService, chat: ScriptedChat) -> None:
    for number in range(3):
        chat.say(f"{number}", Asked(system="Be kind.", tools=(FIND,)))
    kinds = [event.type for event in sessions.get_events(SID)]
    assert kinds.count(EventType.PROMPT_CONTENT) == 2


def test_a_prompt_is_in_the_write_of_the_message_that_caused_it(
    sessions: SessionService, chat: ScriptedChat
) -> None:
    call_id = chat.say("hi", Asked(), answer=False)
    message, prompt = sessions.get_events(SID)[-2:]
    assert (message.text, prompt.id) == ("hi", call_id)
    assert message.timestamp == prompt.timestamp


def test_prompts_and_answers_are_not_told_to_a_model(sessions: SessionService, chat: ScriptedChat) -> None:
    chat.say("hi", Asked(system="Be kind."))
    assert [message.text for message in sessions.view(SID).told()] == ["hi", "on hi"]


def test_the_hash_of_a_body_cannot_be_guessed_from_the_body(
    sessions: SessionService, chat: ScriptedChat
) -> None:
    digests: set[str] = set()
    for name in ("a", "b"):
        sessions.create(name)
        other = ScriptedChat(sessions, name, PromptRecorder(sessions, renderers=RENDERERS))
        digests.add((sessions.get_event(name, other.say("hi", Asked())).payload or {})["digest"])
    assert len(digests) == 2


def test_a_renderer_that_is_not_installed_is_named(sessions: SessionService, chat: ScriptedChat) -> None:
    call_id = chat.say("hi", Asked())
    with pytest.raises(UnknownRendererError, match=r"test\.openai/1") as caught:
        SessionAudit(sessions, renderers={"other/1": RENDERERS["test.openai/1"]}).told(SID, call_id)
    assert caught.value.known == ("other/1",)


def test_a_renderer_that_gives_other_bytes_is_found_out(sessions: SessionService, chat: ScriptedChat) -> None:
    call_id = chat.say("hi", Asked())

    def changed(*args: Any, **kwargs: Any) -> bytes:
        return RENDERERS["test.openai/1"](*args, **kwargs) + b" "

    with pytest.raises(PromptMismatchError) as caught:
        SessionAudit(sessions, renderers={"test.openai/1": changed}).told(SID, call_id)
    assert caught.value.body.endswith(b" ")


def test_a_request_of_an_unknown_renderer_is_kept_by_value(sessions: SessionService) -> None:
    chat = ScriptedChat(sessions, SID, PromptRecorder(sessions, renderers={}))
    call_id = chat.say("hi", Asked())
    assert SessionAudit(sessions, renderers={}).told(SID, call_id).body == chat.sent[call_id, 1]


def test_the_newest_attempt_is_told_unless_one_is_named(
    sessions: SessionService, audit: SessionAudit
) -> None:
    chat = ScriptedChat(sessions, SID, PromptRecorder(sessions, renderers=RENDERERS))
    call_id = chat.say("hi", Asked(), resends=["alternate", "x"])
    assert audit.told(SID, call_id).attempt == 3
    assert audit.told(SID, call_id, attempt=1).body == chat.sent[call_id, 1]


@pytest.mark.parametrize("attempt", [0, 3])
def test_an_attempt_that_was_never_made_is_refused(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat, attempt: int
) -> None:
    call_id = chat.say("hi", Asked(), resends=["alternate"])
    with pytest.raises(UnknownCallError, match="2 attempts"):
        audit.told(SID, call_id, attempt=attempt)


def test_a_call_that_was_never_recorded_is_refused(sessions: SessionService, audit: SessionAudit) -> None:
    say_turns(sessions, SID, 0, 1)
    for call_id in ("nothing", "u0"):
        with pytest.raises(UnknownCallError):
            audit.told(SID, call_id)


def test_the_view_at_a_call_is_what_was_rendered(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    call_id = chat.say("first", Asked())
    chat.say("second", Asked())
    assert [message.text for message in audit.view_at(SID, call_id).messages] == ["first"]


def test_a_difference_of_calls_says_what_else_was_sent_differently(
    audit: SessionAudit, chat: ScriptedChat
) -> None:
    first = chat.say("one", Asked(options={"temperature": 0.5}))
    second = chat.say("two", Asked(options={"temperature": 0.9}, aside="by the way"))
    found = audit.diff(SID, first, second)
    assert [change.name for change in found.changes] == ["options", "unstored messages"]
    assert [came.event.excerpt for came in found.came] == ["Assistant: on one", "User: two"]


def test_a_filtered_message_was_not_told(audit: SessionAudit, chat: ScriptedChat) -> None:
    first = chat.say("one", Asked())
    second = chat.say("two", Asked(filter=EventFilter(roles=(Role.ASSISTANT,))))
    assert [left.event.excerpt for left in audit.diff(SID, first, second).left] == ["User: one"]


def test_a_message_names_the_prompts_that_told_it(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    first = chat.say("a text that is long enough to be shortened", Asked())
    second = chat.say("two", Asked(shortens=True))
    chat.say("three", Asked(filter=EventFilter(last_n=1)))
    compact(sessions, SID)
    fourth = chat.say("four", Asked())
    event = next(event for event in sessions.get_events(SID) if event.message)
    carried = audit.carried(SID, event.id).prompts
    assert [(one.call_id, one.how) for one in carried] == [
        (first, "message"),
        (second, "value"),
        (fourth, "summary"),
    ]


def test_the_timeline_has_calls_with_what_they_used_and_cost(
    sessions: SessionService, audit: SessionAudit
) -> None:
    prices = {"m-1": Price(Decimal(2), Decimal(8), cache_read=Decimal("0.5"))}
    recorder = PromptRecorder(sessions, renderers=RENDERERS, prices=prices)
    ScriptedChat(sessions, SID, recorder).say("hi", Asked(), resends=["alternate"])
    found = audit.timeline(SID)
    (call,) = (entry.call for entry in found.entries if entry.call)
    assert (call.attempts, call.input_tokens, call.output_tokens) == (2, 1000, 100)
    assert found.costs == {"USD": "0.0022"}  # 600 fresh, 400 cached, 100 answered


def test_an_answer_is_recorded_with_its_figures(sessions: SessionService, audit: SessionAudit) -> None:
    call_id = audit.record_prompt(SID, body={"model": "m"})
    audit.record_reply(SID, call_id, response_id="r", finish_reason="stop", usage=USAGE, latency_ms=7.5)
    payload = dict(sessions.get_events(SID)[-1].payload or {})
    assert payload["usage"]["input_tokens"] == 1000
    assert (payload["response_id"], payload["latency_ms"]) == ("r", 7.5)


def test_an_answer_needs_a_recorded_prompt(audit: SessionAudit) -> None:
    with pytest.raises(UnknownEventError):
        audit.record_reply(SID, "nothing")


def test_a_mapping_is_told_as_canonical_json_and_marked(audit: SessionAudit) -> None:
    found = audit.told(SID, audit.record_prompt(SID, body={"b": 1, "a": "é"}))
    assert (found.body, found.is_exact) == (b'{"a":"\\u00e9","b":1}', False)


@pytest.mark.parametrize("body", ["text", 7, None])
def test_what_is_no_body_is_refused(audit: SessionAudit, body: Any) -> None:
    with pytest.raises(InvalidPromptError):
        audit.record_prompt(SID, body=body)


def test_messages_that_are_repeats_cause_a_prompt_all_the_same(
    sessions: SessionService, audit: SessionAudit
) -> None:
    say_turns(sessions, SID, 0, 1)
    again = NewEvent(message=Message.user("question 0"), id="u0")
    texts = [("user", "question 0"), ("assistant", "answer 0"), ("user", "question 0")]
    body = json.dumps({"messages": [{"role": role, "content": text} for role, text in texts]}).encode()
    assert audit.told(SID, audit.record_prompt(SID, body=body, append=[again])).body == body


def test_a_prompt_takes_what_others_append_meanwhile_into_account(
    sessions: SessionService, audit: SessionAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = sessions.append_events
    done: list[object] = []

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        if not done:
            done.append(append(SID, [Message.user("me first")]))
        return append(*args, **kwargs)

    monkeypatch.setattr(sessions, "append_events", overtaken)
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    call_id = audit.record_prompt(SID, body=body, append=[Message.user("hi")])
    assert audit.told(SID, call_id).body == body


@pytest.mark.parametrize("kind", ["PROMPT_RENDERED", "PROMPT_CONTENT", "MODEL_REPLIED"])
def test_an_application_cannot_write_the_events_of_the_audit(sessions: SessionService, kind: str) -> None:
    with pytest.raises(InvalidEventError, match="turnlog alone"):
        sessions.append_event(SID, kind, {"call": "forged"})


def test_an_event_of_another_log_is_no_way_around_that(sessions: SessionService, audit: SessionAudit) -> None:
    call_id = audit.record_prompt(SID, body={"model": "m"})
    sessions.create("other")
    with pytest.raises(InvalidEventError):
        sessions.append_event("other", sessions.get_event(SID, call_id))


def test_a_log_with_prompts_is_whole(
    sessions: SessionService, audit: SessionAudit, chat: ScriptedChat
) -> None:
    chat.say("hi", Asked(system="Be kind.", tools=(FIND,)))
    assert audit.verify().is_whole
