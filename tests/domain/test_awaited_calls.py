"""The awaited calls that the state keeps are those that the log itself shows."""

from __future__ import annotations

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from tests.domain.given import Command, answered, given, said

from turnlog.domain.entries import entry_of
from turnlog.domain.messages import Message, ToolCallPart
from turnlog.domain.turns import open_awaited

_ids = st.sampled_from(["c1", "c2"])
_branches = st.sampled_from([None, "scout"])


def _asked(calls: list[tuple[str, bool]], branch: str | None) -> Command:
    parts = [ToolCallPart(id=call_id, name="approve", awaiting=awaiting) for call_id, awaiting in calls]
    return said(Message.assistant(parts), branch=branch)


def _answered(ids: list[str], provisional: bool, branch: str | None) -> Command:
    return said(answered(*ids, provisional=provisional), branch=branch)


_commands = st.lists(
    st.builds(_asked, st.lists(st.tuples(_ids, st.booleans()), min_size=1, max_size=3), _branches)
    | st.builds(_answered, st.lists(_ids, min_size=1, max_size=3), st.booleans(), _branches),
    max_size=8,
)


@settings(max_examples=200)
@for_all(_commands)
def test_the_state_awaits_what_the_log_leaves_open(commands: list[Command]) -> None:
    session = given(*commands).session
    log = [entry for event in session.recorded if (entry := entry_of(event, "parcel"))]
    assert {f"e{call.version}" for call in session.state.awaited} == open_awaited(log)


def test_the_first_of_two_calls_of_one_id_in_a_message_is_answered_first() -> None:
    waiting_first = _asked([("c1", True), ("c1", False)], None)
    waiting_last = _asked([("c1", False), ("c1", True)], None)
    left = [given(call, said(answered("c1"))).session.state.awaited for call in (waiting_first, waiting_last)]
    assert [len(calls) for calls in left] == [0, 1]
