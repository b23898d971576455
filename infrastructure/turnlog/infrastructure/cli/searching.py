"""The command that finds messages by what they say."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from turnlog.application import SessionService
from turnlog.domain.errors import InvalidIdError
from turnlog.domain.log import SessionEvent
from turnlog.domain.query import EventQuery, said_at, searchable
from turnlog.infrastructure.cli import database
from turnlog.infrastructure.cli.failures import CommandUsageError
from turnlog.infrastructure.cli.moments import minute, required_time
from turnlog.infrastructure.cli.output import console, flat, note, one_line, write_json
from turnlog.infrastructure.cli.reading import event_data
from turnlog.infrastructure.cli.rendering import STYLES
from turnlog.infrastructure.cli.settings import Settings, Status

_INDENT = 2
_LINES = 2
"""Lines of a terminal that the text around a hit gets."""


def search_messages(
    settings: Settings,
    keywords: Sequence[str],
    *,
    session: str | None,
    principal: str | None,
    all_terms: bool,
    since: str | None,
    roles: Iterable[str],
    branch: str | None,
    page: int,
    page_size: int,
) -> int:
    """Show one page of the messages that match; status 1 when there are none."""
    if not any(map(str.strip, keywords)):
        raise CommandUsageError("There is nothing to search for but blanks. Name a word or a phrase.")
    first = page * page_size
    query = EventQuery(
        keywords=keywords,
        match="all" if all_terms else "any",
        since=None if since is None else required_time("--since", since),
        roles=roles,
        branch=branch,
        page_size=first + page_size + 1,  # one more than is shown tells whether there is a next page
    )
    with database.reading(settings.database) as service:
        scope = service if principal is None else service.scoped_to(principal)
        if session is None and not settings.json and _names_session(scope, keywords[0]):
            name = shlex.quote(keywords[0])
            note(f"{name} is looked for as a word; `--session {name}` searches in that session only.")
        found = (
            scope.search_all(query)
            if session is None
            else scope.search_events(database.session_id(scope, session), query)
        )
    shown = found[first : first + page_size]
    if settings.json:
        write_json([{"session": event.session_id, **event_data(event)} for event in shown])
    elif shown:
        _print_found(shown, query.terms, next_page=page + 1 if len(found) > first + page_size else None)
    else:
        console().print("Nothing was found." if not found else f"There is no page {page}.")
    return Status.DONE if shown else Status.FOUND_OR_NOTHING_TO_DO


def _names_session(service: SessionService, word: str) -> bool:
    """Whether other commands take the word as the id of a session, so that it may be meant as one."""
    with suppress(InvalidIdError):
        return word == database.LAST or service.find(word) is not None
    return False


def _print_found(events: Sequence[SessionEvent], terms: Sequence[str], *, next_page: int | None) -> None:
    out = console()
    for event in events:
        out.print(_heading(event), soft_wrap=not out.is_terminal)
        _print_text(out, event.text or "", terms)
    if next_page is not None:
        out.print(f"There are more: --page {next_page}", style="dim")


def _heading(event: SessionEvent) -> Text:
    """When it was said, in which session, by whom, and what else is known about it."""
    about = [f"version {event.version}"]
    if event.branch is not None:
        about.append(f"branch {one_line(event.branch)}")
    if event.synthetic:
        about.append("summary")
    if event.archived:
        about.append("no longer in the view")
    role = event.role or ""
    return Text.assemble(
        (minute(said_at(event)), "dim"),
        "  ",
        (one_line(event.session_id), "bold"),
        "  ",
        (role, STYLES.get(role, "bold")),
        (f"  {' · '.join(about)}", "dim"),
    )


def _print_text(out: Console, text: str, terms: Sequence[str]) -> None:
    if out.is_terminal:
        room = _LINES * (out.width - _INDENT) - out.width // 8  # lines are broken between words
        out.print(Padding(excerpt(text, terms, room), (0, 0, 0, _INDENT)))
    else:
        out.print(Text(" " * _INDENT).append_text(excerpt(text, terms, None)), soft_wrap=True)


def excerpt(text: str, terms: Sequence[str], room: int | None) -> Text:
    """The text around the first hit in so many cells, or all of it, on one line and safe for a terminal."""
    start, end = place_of(text, terms)
    if room is None:
        before, after = flat(text[:start].lstrip()), flat(text[end:].rstrip())
    else:
        after = flat(text[end : end + 8 * room].rstrip())
        left = max(room // 3, room - cell_len(after) - cell_len(flat(text[start:end])))
        before = _end_of(flat(text[max(0, start - 8 * room) : start].lstrip()), left)
    line = Text.assemble(before, (flat(text[start:end]), "bold yellow"), after)
    if room is not None:
        line.truncate(room, overflow="ellipsis")
    return line


def place_of(text: str, terms: Iterable[str]) -> tuple[int, int]:
    """Where the first of the terms stands in the text: terms are in their `searchable` form, the text is not.

    (0, 0) when none of them does.
    """
    compared = searchable(text)
    return min((_place(text, term) for term in terms if term in compared), default=(0, 0))


def _place(text: str, term: str) -> tuple[int, int]:
    ends = range(len(text) + 1)
    end = bisect_left(ends, True, key=lambda end: term in searchable(text[:end]))
    starts = range(end + 1)
    gone = bisect_left(starts, True, key=lambda start: term not in searchable(text[start:end]))
    return max(0, gone - 1), end


def _end_of(text: str, width: int) -> str:
    """The end of the text in so many cells; `…` stands for the rest."""
    reversed_text = Text(text[::-1])
    reversed_text.truncate(width, overflow="ellipsis")
    return reversed_text.plain[::-1]
