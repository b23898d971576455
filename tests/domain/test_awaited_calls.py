"""The awaited calls that the state keeps are those that the log itself shows."""

from __future__ import annotations

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from tests.domain.given import Command, answered, asked, given, said

from turnlog.domain.entries import entry_of
from turnlog.domain.turns import open_awaited

_ids = st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=3)
_branches = st.sampled_from([None, "scout"])


def _asked(ids: list[str], awaiting: bool, branch: str | None) -> Command:
    return said(asked(*ids, awaiting=awaiting), branch=branch)


def _answered(ids: list[str], provisional: bool, branch: str | None) -> Command:
    return said(answered(*ids, provisional=provisional), branch=branch)


_commands = st.lists(
    st.builds(_asked, _ids, st.booleans(), _branches) | st.builds(_answered, _ids, st.booleans(), _branches),
    max_size=8,
)


@settings(max_examples=200)
@for_all(_commands)
def test_the_state_awaits_what_the_log_leaves_open(commands: list[Command]) -> None:
    session = given(*commands).session
    log = [entry for event in session.recorded if (entry := entry_of(event, "parcel"))]
    assert {f"e{call.version}" for call in session.state.awaited} == open_awaited(log)
