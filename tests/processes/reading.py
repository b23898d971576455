"""What a reader sees beside writers, held against the rules at every look."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from tests.processes.life import SHARED, found_by_search
from tests.support.log_checker import alive, check, check_growth, owner_of, project, project_prefix, text_of
from tests.support.stored_rows import Database, read_database

from turnlog.application.service import SessionService
from turnlog.domain.errors import SessionNotFoundError

_STRANGER = "eve"


def watch(sessions: SessionService, env: Mapping[str, str], ready: Any, over: Any) -> dict[str, Any]:
    """Look at everything again and again until it is over, and once more."""
    found: list[str] = []
    looks = 0
    before = read_database(env)
    ready.wait()
    while True:
        is_last = over.is_set()
        now = read_database(env)
        found += check(now)
        found += check_growth(before, now)
        for name in SHARED:
            found += _torn(sessions, name)
        found += _seen_by_strangers(sessions)
        before = now
        looks += 1
        if is_last or found:
            return {"looks": looks, "found": found}


def _torn(sessions: SessionService, session_id: str) -> Iterator[str]:
    """One read of a log, and one of a view, against each other."""
    view = sessions.view(session_id)
    events = sessions.get_events(session_id)
    known = [event for event in events if event.version <= view.version]
    expected: list[str] = []
    for place, event in enumerate(events):
        if event.boundary is not None:
            summary = tuple(one.id for one in events[place + 1 : place + 1 + len(event.boundary.summary)])
            if summary != event.boundary.summary:
                yield f"{session_id}: a boundary was read without its summary"
    for event in known:
        if event.boundary is not None:
            expected = [*event.boundary.pinned, *event.boundary.summary, *event.boundary.preserved]
        elif event.message is not None and event.id not in expected:
            expected.append(event.id)
    if list(view.ids) != expected:
        yield f"{session_id}: the view at version {view.version} is not the projection of the log"


def _seen_by_strangers(sessions: SessionService) -> Iterator[str]:
    """Law 12: to somebody else nothing is there."""
    stranger = sessions.scoped_to(_STRANGER)
    if stranger.list_sessions() or found_by_search(stranger):
        yield "law 12: a stranger finds sessions"
    for name in SHARED:
        if stranger.find(name) is not None or stranger.get_events(name):
            yield f"law 12: a stranger reads {name}"
        try:
            stranger.view(name)
        except SessionNotFoundError:
            continue
        yield f"law 12: a stranger gets the view of {name}"


def compare(sessions: SessionService, database: Database) -> Iterator[str]:
    """What the service answers, against what the rows say."""
    there = alive(database)
    for name, rows in there.items():
        view = sessions.view(name)
        if list(view.ids) != project(rows):
            yield f"law 2: {name}: the view is not the projection"
        for version in random.Random(0).sample(range(len(rows)), min(5, len(rows))):
            told = sessions.view(name, at_version=version)
            if list(told.ids) != project_prefix(rows[: version + 1]):
                yield f"law 2: {name}: the view at version {version} is not the projection up to there"
        listed = [(event.id, event.version) for event in sessions.get_events(name)]
        if listed != [(row.get("event_id"), row.version) for row in rows if row.get("event_id")]:
            yield f"{name}: the log is read otherwise than it is stored"
    owners = {name: owner_of(rows) for name, rows in there.items()}
    for principal in {*SHARED.values(), _STRANGER}:
        scope = sessions.scoped_to(principal)
        own = {name for name, owner in owners.items() if owner == principal}
        if {row.session_id for row in scope.list_sessions(limit=100_000)} != own:
            yield f"law 12: {principal} is listed other sessions than her own"
        yield from _search_problems(scope, own, database)


def _search_problems(scope: SessionService, own: set[str], database: Database) -> Iterator[str]:
    """Law 12, and recall: every message is found by its word in the scope of its owner, and no other."""
    said = {
        (name, row.version): text
        for name, rows in alive(database).items()
        for row in rows
        if row.kind == "MessageAppended" and (text := text_of(row))
    }
    if set(found_by_search(scope)) != {place for place in said if place[0] in own}:
        yield "law 12: a search finds other messages than those of its scope"
    for place in random.Random(1).sample(sorted(said), min(40, len(said))):
        word = said[place].split()[0]
        if (place in found_by_search(scope, word)) != (place[0] in own):
            yield f"{place}: {word!r} is found or not, against its scope"
