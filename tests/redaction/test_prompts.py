"""What was told to a model and redacted since: the gaps are known, what stood in them cannot be found out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.audit.calls import Asked, Call, ScriptedChat
from tests.audit.renderers import RENDERERS, rendered

from turnlog.application.audit import PromptRecorder, PromptRedactedError, SessionAudit
from turnlog.application.chat.model import ChatRequest
from turnlog.application.service import SessionService
from turnlog.domain.compaction import SummaryRequest
from turnlog.domain.errors import LegalHoldError
from turnlog.domain.log import EventType, NewEvent
from turnlog.domain.messages import Message
from turnlog.domain.window import CompactionWindow, WindowCompactionStrategy

SID, SECRET = "s", "my number is 0170-5551234"
WHY: Any = {"reason": "asked", "by": "bob"}


class Told:
    """A session, its audit, and a chat that records what it sends."""

    def __init__(self) -> None:
        self.sessions = SessionService()
        self.sessions.create(SID)
        self.audit = SessionAudit(self.sessions, renderers=RENDERERS)
        self.recorder = PromptRecorder(self.sessions, renderers=RENDERERS)
        self.chat = ScriptedChat(self.sessions, SID, self.recorder)

    def say(self, text: str, **asked: Any) -> str:
        return self.chat.say(text, Asked(**asked), answer=False)

    def id_of(self, text: str) -> str:
        return next(event.id for event in self.sessions.get_events(SID) if event.text == text)

    def redact(self, text: str, **settings: Any) -> Any:
        redaction = self.sessions.redact(SID, self.id_of(text), **WHY, **settings)
        assert self.audit.verify().findings == ()
        return redaction

    def stored(self) -> str:
        rows = self.sessions.app.recorder.select_notifications(None, 10_000)
        return "\n".join(row.state.decode() for row in rows)

    def left(self, call_id: str) -> str | None:
        with pytest.raises(PromptRedactedError) as caught:
            self.audit.told(SID, call_id)
        return None if caught.value.body is None else caught.value.body.decode()


class Recap:
    """A summarizer that repeats what it was told."""

    def summarize(self, request: SummaryRequest) -> Sequence[Message]:
        said = " ".join(event.text or "" for event in request.covered)
        return [Message.user("What was said?"), Message.assistant(f"They said: {said}")]


@pytest.fixture
def told() -> Iterator[Told]:
    opened = Told()
    yield opened
    opened.sessions.close()


def test_a_call_that_told_it_comes_back_around_the_gap(told: Told) -> None:
    call_id = told.say(SECRET)
    told.redact(SECRET)
    left = told.left(call_id)
    assert left is not None
    assert left == told.chat.sent[call_id, 1].decode().replace(SECRET, "[redacted: asked]")


def test_no_hash_is_left_by_which_it_could_be_found(told: Told) -> None:
    call_id = told.say(SECRET)
    prompt = told.sessions.get_event(SID, call_id).payload or {}
    told.redact(SECRET)
    assert prompt["salt"] not in told.stored()
    assert prompt["digest"] not in told.stored()


def test_a_call_that_did_not_tell_it_is_proven_as_before(told: Told) -> None:
    before = told.say("Good morning.")
    told.say(SECRET)
    told.redact(SECRET)
    assert told.audit.told(SID, before).body == told.chat.sent[before, 1]


def test_a_call_behind_the_redaction_is_proven(told: Told) -> None:
    told.say(SECRET)
    told.redact(SECRET)
    call_id = told.say("And now?")
    assert told.audit.told(SID, call_id).body == told.chat.sent[call_id, 1]


@pytest.mark.parametrize(
    "asked",
    [
        {"aside": f"Remember: {SECRET}!"},
        {"beside": f"The user said: {SECRET}"},
        {"system": f"The user said: {SECRET}"},
        {"options": {"stop": [f"<{SECRET}>"]}},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_a_copy_that_a_prompt_holds_goes_too(told: Told, asked: dict[str, Any]) -> None:
    told.say(SECRET)
    call_id = told.say("And now?", **asked)
    told.redact(SECRET)
    assert "0170-" not in told.stored()
    left = told.left(call_id)
    assert left is not None
    assert "0170-" not in left


def test_a_shortened_copy_goes_too(told: Told) -> None:
    told.say(SECRET)
    call_id = told.say("And now?", shortens=True)
    assert "characters]" in told.stored()
    told.redact(SECRET)
    assert "characters]" not in (told.left(call_id) or "")


def test_bytes_that_an_application_made_lose_what_they_quote(told: Told) -> None:
    told.say(SECRET)
    body = f"ask: {SECRET}\nanswer:".encode()
    call_id = told.audit.record_prompt(SID, body=body)
    told.redact(SECRET)
    assert told.left(call_id) == "ask: [redacted: asked]\nanswer:"


def test_a_second_redaction_takes_more_out_of_the_same_prompt(told: Told) -> None:
    told.say("I live in Lund, Kloster street 5.")
    call_id = told.say(SECRET, aside="They live in Lund: I live in Lund, Kloster street 5.")
    told.redact(SECRET)
    assert "Kloster" in (told.left(call_id) or "")
    told.redact("I live in Lund, Kloster street 5.")
    assert "Kloster" not in (told.left(call_id) or "Kloster")
    assert "Kloster" not in told.stored()


def compact(told: Told) -> str:
    told.say("Something else.")
    told.sessions.compact(SID, None, WindowCompactionStrategy(CompactionWindow.last_turns(1), Recap()))
    return told.sessions.view(SID).events[1].id


def test_summaries_and_prompts_that_may_carry_it_on_are_named(told: Told) -> None:
    told.say(SECRET)
    summary = compact(told)
    call_id = told.say("And now?")
    redaction = told.redact(SECRET)
    assert summary in redaction.summaries
    assert redaction.prompts == (call_id,)
    assert SECRET in told.stored()


def test_a_cascade_redacts_what_carries_it_on(told: Told) -> None:
    told.say(SECRET)
    compact(told)
    call_id = told.say("And now?")
    redaction = told.redact(SECRET, cascade=True)
    assert (redaction.summaries, redaction.prompts) == ((), ())
    assert "0170-" not in told.stored()
    assert "0170-" not in (told.left(call_id) or "0170-")


def test_a_cascade_leaves_nothing_of_bodies_that_an_application_made(told: Told) -> None:
    told.say(SECRET)
    call_id = told.audit.record_prompt(SID, body={"prompt": "a number: 0170 555 1234"})
    assert told.sessions.redact(SID, told.id_of(SECRET), **WHY, cascade=False).prompts == (call_id,)
    told.say("my second number is 0171")
    other = told.audit.record_prompt(SID, body={"prompt": "a number: zero one seven one"})
    told.redact("my second number is 0171", cascade=True)
    assert told.left(other) is None
    assert "zero one seven one" not in told.stored()


def test_metadata_that_quote_it_are_named_and_former_ones_go_with_a_cascade(told: Told) -> None:
    told.say(SECRET)
    former = told.sessions.update_metadata(SID, {"title": SECRET})
    newest = told.sessions.update_metadata(SID, {"title": f"{SECRET}!"})
    redaction = told.redact(SECRET, cascade=True)
    assert former in redaction.redacted
    assert redaction.metadata == (newest,)


def test_timeline_diff_and_carried_go_on(told: Told) -> None:
    first = told.say(SECRET)
    second = told.say("And now?")
    event_id = told.id_of(SECRET)
    told.redact(SECRET)
    assert told.audit.timeline(SID).calls == 2
    assert told.audit.diff(SID, first, second).came
    assert [one.call_id for one in told.audit.carried(SID, event_id).prompts] == [first, second]


def test_a_prompt_can_be_redacted_by_itself(told: Told) -> None:
    call_id = told.say(SECRET)
    told.sessions.redact(SID, call_id, **WHY)
    assert told.left(call_id) is None
    assert told.audit.timeline(SID).calls == 1
    assert told.sessions.get_event(SID, call_id).type == EventType.PROMPT_RENDERED


def test_what_was_appended_under_its_text_elsewhere_stays(told: Told) -> None:
    told.say(SECRET)
    told.sessions.append_events(SID, [NewEvent(message=Message.assistant(f"You said {SECRET}"), id="echo")])
    told.redact(SECRET)
    assert told.sessions.get_event(SID, "echo").redacted is None


def test_a_call_that_was_under_way_brings_nothing_back_into_the_log(told: Told) -> None:
    told.say(SECRET)
    view = told.sessions.view(SID)
    request = ChatRequest(view.told_events())
    sent = rendered(request, "test.openai/1")
    assert SECRET.encode() in sent.body
    told.redact(SECRET)
    call = Call(SID, "turn 9", None, view.version, view.version, 1, sent)
    events = told.sessions.append_events(SID, list(told.recorder.prompt(call)))
    assert "0170-" not in told.stored()
    assert told.left(events[-1].id) == sent.body.decode().replace(SECRET, "[redacted: asked]")


def test_a_repeat_names_what_carries_it_on_as_before(told: Told) -> None:
    told.say(SECRET)
    compact(told)
    told.say("And now?")
    told.sessions.update_metadata(SID, {"title": SECRET})
    event_id = told.id_of(SECRET)
    first = told.redact(SECRET)
    again = told.sessions.redact(SID, event_id, **WHY)
    assert (again.is_repeat, again.redacted, again.version) == (True, (), first.version)
    assert (again.summaries, again.prompts, again.metadata) == (
        first.summaries,
        first.prompts,
        first.metadata,
    )
    assert first.summaries
    assert first.prompts
    assert first.metadata


def test_a_cascade_after_a_plain_redaction_redacts_what_carries_it_on(told: Told) -> None:
    told.say(SECRET)
    former = told.sessions.update_metadata(SID, {"title": SECRET})
    in_force = told.sessions.update_metadata(SID, {"title": f"{SECRET}!"})
    compact(told)
    call_id = told.say("And now?")
    event_id = told.id_of(SECRET)
    first = told.redact(SECRET)
    again = told.sessions.redact(SID, event_id, **WHY, cascade=True)
    assert (again.is_repeat, again.version) == (True, first.version)
    assert former in again.redacted
    assert (again.summaries, again.prompts, again.metadata) == ((), (), (in_force,))
    told.sessions.update_metadata(SID, {"title": "Parcels"})
    told.sessions.redact(SID, in_force, **WHY)
    assert "0170-" not in told.stored()
    assert "0170-" not in (told.left(call_id) or "0170-")
    assert told.audit.verify().findings == ()


def test_a_later_cascade_leaves_nothing_of_bodies_that_an_application_made(told: Told) -> None:
    told.say(SECRET)
    call_id = told.audit.record_prompt(SID, body={"prompt": "a number: zero one seven zero"})
    event_id = told.id_of(SECRET)
    assert told.redact(SECRET).prompts == (call_id,)
    again = told.sessions.redact(SID, event_id, **WHY, cascade=True)
    assert len(again.redacted) == 1
    assert told.left(call_id) is None
    assert "zero one seven zero" not in told.stored()


def test_a_second_cascade_records_nothing(told: Told) -> None:
    told.say(SECRET)
    compact(told)
    told.say("And now?")
    told.audit.record_prompt(SID, body={"prompt": "a number: zero one seven zero"})
    event_id = told.id_of(SECRET)
    told.redact(SECRET)
    told.sessions.redact(SID, event_id, **WHY, cascade=True)
    version = told.sessions.version(SID)
    again = told.sessions.redact(SID, event_id, **WHY, cascade=True)
    assert (again.is_repeat, again.redacted, told.sessions.version(SID)) == (True, (), version)
    assert (again.summaries, again.prompts, again.metadata) == ((), (), ())


def test_a_later_cascade_under_a_legal_hold_is_refused(told: Told) -> None:
    told.say(SECRET)
    compact(told)
    event_id = told.id_of(SECRET)
    told.redact(SECRET)
    told.sessions.hold(SID, reason="court", by="ada")
    with pytest.raises(LegalHoldError):
        told.sessions.redact(SID, event_id, **WHY, cascade=True)
