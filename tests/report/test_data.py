from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.report.conversations import AUDIT, Digest, at_random, last_turns, of_parcels

from turnlog.application import SessionService
from turnlog.domain import Message, SessionEvent
from turnlog.infrastructure.report.data import PageData, pages
from turnlog.infrastructure.report.following import FollowedView, Measures, measure
from turnlog.infrastructure.tokens import TiktokenEstimator

_ESTIMATOR = TiktokenEstimator()


def tokens(event: SessionEvent) -> int:
    return _ESTIMATOR.estimate(event.message) if event.message else 0


def measured(
    sessions: SessionService, session_id: str, *, branch: str | None = None, of_part: int = 20_000
) -> Measures:
    events = sessions.iter_events(session_id)
    head = sessions.version(session_id)
    return measure(events, head, tokens, branch=branch, messages_of_part=of_part)


def paged(
    sessions: SessionService, session_id: str, *, of_part: int = 20_000, in_full: int = 2_000
) -> list[PageData]:
    measures = measured(sessions, session_id, of_part=of_part)
    return list(pages(sessions.iter_events(session_id), measures, carried_in_full=in_full))


def messages(page: PageData) -> list[dict[str, Any]]:
    return [entry for entry in page.entries if "role" in entry]


@pytest.mark.parametrize("seed", range(4))
def test_the_followed_view_is_the_view_of_the_service_at_every_version(
    sessions: SessionService, seed: int
) -> None:
    session_id = at_random(sessions, seed, 80)
    followed = FollowedView()
    for event in sessions.get_events(session_id):
        followed.step(event)
        assert followed.events == sessions.view(session_id, at_version=event.version).events


def test_tokens_are_counted_as_the_service_counts_them(sessions: SessionService) -> None:
    session_id = at_random(sessions, 5, 120)
    measures = measured(sessions, session_id)
    usage = sessions.usage(session_id)
    assert measures.in_log[-1] == usage.log_tokens
    assert measures.turns == usage.log_turns


def test_what_a_version_costs_is_what_is_sent_of_its_view(sessions: SessionService) -> None:
    session_id = of_parcels(sessions)
    sessions.append_message(session_id, Message.system("Be brief."))
    assert measured(sessions, session_id).in_view[-1] == sessions.usage(session_id).tokens
    sessions.compact(session_id, None, last_turns(2, Digest()))
    measures = measured(sessions, session_id)
    assert measures.in_view[-1] == sessions.usage(session_id).tokens
    assert len(measures.in_view) == sessions.version(session_id) + 1


def test_a_branch_is_measured_by_what_it_was_told(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", Message.user("All of you"))
    sessions.append_message("s", Message.user("Only the researcher"), branch="orch.researcher")
    (root, own) = (measured(sessions, "s", branch=branch).in_view[-1] for branch in (None, "orch.researcher"))
    assert own == measured(sessions, "s").in_log[-1] > root


def test_versions_that_are_no_entries_keep_what_was_before(sessions: SessionService) -> None:
    session_id = of_parcels(sessions, 1)
    before = measured(sessions, session_id).in_view
    sessions.update_metadata(session_id, {"title": "Other"})
    assert measured(sessions, session_id).in_view == [*before, before[-1]]


def test_a_boundary_names_places_of_messages_in_the_order_of_the_view(sessions: SessionService) -> None:
    session_id = of_parcels(sessions, 4)
    sessions.compact(session_id, None, last_turns(2, Digest()))
    (page,) = paged(sessions, session_id)
    (view,) = page.views
    shown = messages(page)
    places = [
        place
        for kind in ("pinned", "summary", "preserved")
        for first, last in view[kind]
        for place in range(first, last + 1)
    ]
    assert [shown[place]["id"] for place in places] == list(sessions.view(session_id).ids)


def test_an_entry_of_the_applications_own_is_shown_with_its_payload(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_event("s", AUDIT, {"by": "ada"})
    (page,) = paged(sessions, "s")
    assert (page.entries[0]["type"], page.entries[0]["payload"]) == ("ACME.AUDIT", '{\n  "by": "ada"\n}')


def test_context_and_metadata_are_shown(sessions: SessionService) -> None:
    sessions.create("s")
    sessions.append_message("s", Message.user("Hi", metadata={"model": "m"}), context={"actor": "web"})
    (page,) = paged(sessions, "s")
    assert '"actor": "web"' in page.entries[0]["about"]
    assert '"model": "m"' in page.entries[0]["about"]


def test_a_long_log_is_parted_into_windows_without_gaps(sessions: SessionService) -> None:
    session_id = of_parcels(sessions, 25)
    windows = [(page.first, page.last) for page in paged(sessions, session_id, of_part=30)]
    assert len(windows) == 4
    assert windows[0][0] == 0
    assert windows[-1][1] == sessions.version(session_id)
    assert all(first == last + 1 for (_, last), (first, _) in pairwise(windows))


def test_each_message_of_a_parted_log_is_said_in_one_window(sessions: SessionService) -> None:
    session_id = at_random(sessions, 7, 150)
    said = [
        entry["v"]
        for page in paged(sessions, session_id, of_part=20)
        for entry in page.entries
        if not entry.get("carried")
    ]
    assert said == [event.version for event in sessions.get_events(session_id)]


def test_no_window_ends_inside_the_write_of_a_compaction(sessions: SessionService) -> None:
    session_id = of_parcels(sessions, 3)
    for number in range(4, 30):
        sessions.append_message(session_id, Message.user(f"{number}?"))
        sessions.compact(session_id, None, last_turns(2, Digest()))
    for page in paged(sessions, session_id, of_part=3):
        assert all(view["until"] <= page.last for view in page.views)


def test_a_window_begins_with_the_view_that_it_found(sessions: SessionService) -> None:
    session_id = of_parcels(sessions, 12)
    second = paged(sessions, session_id, of_part=30)[1]
    carried = [entry["id"] for entry in messages(second) if entry.get("carried")]
    assert carried == list(sessions.view(session_id, at_version=second.first - 1).ids)


def test_of_a_large_view_a_window_carries_the_newest_messages_in_full(sessions: SessionService) -> None:
    session_id = of_parcels(sessions, 12)
    second = paged(sessions, session_id, of_part=30, in_full=5)[1]
    carried = [entry for entry in messages(second) if entry.get("carried")]
    assert ["parts" in entry for entry in carried] == [False] * (len(carried) - 5) + [True] * 5
    assert all(entry["tokens"] for entry in carried)
