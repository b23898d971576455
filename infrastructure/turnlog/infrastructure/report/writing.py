"""Writing the report: one page, or for a very long log a page per part."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from turnlog.application import AnySessionService, SessionDetails
from turnlog.application.async_service import sync_service
from turnlog.application.audit import LostEvents, SessionAudit
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionNotFoundError
from turnlog.domain.estimation import TokenEstimator
from turnlog.domain.ids import check_branch
from turnlog.domain.log import SessionEvent
from turnlog.infrastructure.report.chart import Chart, chart_of
from turnlog.infrastructure.report.data import PageData, pages
from turnlog.infrastructure.report.errors import ReportExistsError, ReportExtraMissingError
from turnlog.infrastructure.report.following import Measures, measure
from turnlog.infrastructure.tokens import TiktokenEstimator
from turnlog.infrastructure.visible import visible
from turnlog.infrastructure.whole_files import write_whole

MESSAGES_OF_A_PART: Final = 20_000
"""Messages of one page; a longer log becomes several."""

_TITLE: Final = 80
"""Characters of a title that is made of what was said."""

_NAMED: Final = 20
"""Runs of lost events that a page names at its top."""

_SCRIPT: Final = (
    "data",
    "nodes",
    "parts",
    "entries",
    "view",
    "moment",
    "going",
    "search",
    "printing",
    "start",
)
"""The pieces of the page's script in their order."""


@dataclass(frozen=True)
class WrittenReport:
    """The files of a report, the one to open first, and what they show.

    `lost` are events that the log does not have any more; the pages say so.
    """

    files: tuple[Path, ...]
    session_id: str
    version: int
    messages: int
    lost: tuple[LostEvents, ...] = ()


@dataclass(frozen=True)
class Part:
    """One file of the report and the versions that it shows."""

    name: str
    first: int
    last: int


def write_report(
    sessions: AnySessionService,
    session_id: str,
    path: Path | str,
    *,
    branch: str | None = None,
    replace: bool = False,
    token_estimator: TokenEstimator | None = None,
    messages_of_part: int = MESSAGES_OF_A_PART,
) -> WrittenReport:
    """Write a session as an HTML page that needs no network: what was said, and what the model was told when.

    With a `branch` it is what the model of this sub-agent was told. A log of more than `messages_of_part`
    messages becomes several files beside each other, which link each other. They appear when all of them are
    complete. Of a log that lost events each page says at its top which are missing.

    Raises `SessionNotFoundError`, `ReportExistsError` unless `replace`, `ReportExtraMissingError`, `OSError`.
    """
    if branch is not None:
        check_branch(branch)
    sessions = sync_service(sessions)
    template = _template()
    path = Path(path)
    details = sessions.find(session_id)
    if details is None:
        raise SessionNotFoundError(session_id)
    tokens = _counted(token_estimator or TiktokenEstimator())
    measures = measure(
        sessions.iter_events(session_id),
        details.version,
        tokens,
        branch=branch,
        messages_of_part=messages_of_part,
    )
    names = _names(path, len(measures.windows))
    if not replace:
        for taken in filter(Path.is_file, names):
            raise ReportExistsError(taken)
    parts = [Part(name.name, *window) for name, window in zip(names, measures.windows, strict=True)]
    lost = SessionAudit(sessions).lost(session_id)
    common = {**_common(details, branch, measures, chart_of(measures)), "lost": _named(lost)}
    made = (
        template.render(**common, **_of_page(page, parts, place, common))
        for place, page in enumerate(pages(sessions.iter_events(session_id), measures, lost))
    )
    write_whole(((name, [text]) for name, text in zip(names, made, strict=True)), replace=replace)
    return WrittenReport(tuple(names), session_id, details.version, measures.messages, lost)


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise ReportExtraMissingError from error
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("page.html"))


def _common(
    details: SessionDetails, branch: str | None, measures: Measures, chart: Chart
) -> Mapping[str, Any]:
    """What is the same on every page."""
    from markupsafe import Markup

    script, style = _script(), _file("page.css")
    return {
        "title": visible(_title(details, measures)),
        "session_id": visible(details.id),
        "branch": None if branch is None else visible(branch),
        "facts": _facts(details, measures),
        "chart": chart,
        "head": measures.head,
        "script": Markup(script),  # noqa: S704 - our own files
        "style": Markup(style),  # noqa: S704
        "policy": policy(script, style),
        "session": _session(details, branch, measures),
    }


def _named(lost: Sequence[LostEvents]) -> str:
    """What is missing, in words; nothing where the log is whole."""
    named = ", ".join(map(str, lost[:_NAMED]))
    return f"{named}, and so are events in {len(lost) - _NAMED:,} further places" if lost[_NAMED:] else named


def _title(details: SessionDetails, measures: Measures) -> str:
    """The session's title, else how its first turn begins, else its id."""
    title = details.metadata.get(SessionAttributes.TITLE)
    if isinstance(title, str) and title.strip():
        return title
    opening = " ".join(measures.opening[: _TITLE * 4].split())
    return (opening if len(opening) <= _TITLE else f"{opening[:_TITLE].rstrip()}…") or details.id


def _of_page(
    page: PageData, parts: Sequence[Part], place: int, common: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What only this page has."""
    from markupsafe import Markup

    names = [{"name": part.name, "first": part.first, "last": part.last} for part in parts]
    data = {**page.to_dict(), "session": common["session"], "part": place, "parts": names}
    return {
        "part": place + 1,
        "parts": parts,
        "data": Markup(json_for_html(data)),  # noqa: S704 - escaped there
    }


def _session(details: SessionDetails, branch: str | None, measures: Measures) -> Mapping[str, Any]:
    return {"id": details.id, "head": measures.head, "branch": branch}


def _facts(details: SessionDetails, measures: Measures) -> Sequence[tuple[str, str]]:
    """What stands under the title: names and values."""
    facts = [
        ("Messages", f"{measures.messages:,}"),
        ("Turns", f"{measures.turns:,}"),
        ("Compactions", f"{len(measures.boundaries):,}"),
        ("Told now", f"{measures.in_view[-1]:,} tokens"),
        ("Ever said", f"{measures.in_log[-1]:,} tokens"),
        ("Begun", _minute(details.created_at)),
        ("Last change", _minute(details.modified_at)),
    ]
    principal = details.metadata.get(SessionAttributes.PRINCIPAL_NAME)
    if isinstance(principal, str) and principal:
        facts.append(("Of", visible(principal)))
    return facts


def _minute(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def policy(script: str, style: str) -> str:
    """The Content-Security-Policy of the page: our script, our style, images inside it, and nothing else."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def json_for_html(value: object) -> str:
    """The value as ASCII JSON in which nothing can end or begin an element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _script() -> str:
    """The pieces of the script as one, which leaves no names behind."""
    pieces = "\n".join(_file(f"script/{name}.js") for name in _SCRIPT)
    return f'"use strict";\n(() => {{\n{pieces}}})();\n'


def _file(name: str) -> str:
    return (files("turnlog.infrastructure.report") / name).read_text("utf-8").replace("\r\n", "\n")


def _counted(estimator: TokenEstimator) -> Callable[[SessionEvent], int]:
    def tokens(event: SessionEvent) -> int:
        return max(0, estimator.estimate(event.message)) if event.message else 0

    return tokens


def _names(path: Path, parts: int) -> list[Path]:
    """The given name, and for further parts the same with their numbers."""
    return [path, *(path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(2, parts + 1))]
