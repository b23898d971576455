"""What the audit says of sessions of which the log lost events: none of it passes for the whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.audit.logs import compact, say_turns
from tests.docs.test_damaged_log import Operated, operated
from tests.infrastructure.cli.conftest import Result

from turnlog.application import SessionService
from turnlog.application.audit import FindingKind, Heads, LostEvents, NoSummaryError, SessionAudit
from turnlog.domain import Message, MissingEventError, SessionNotFoundError, UnreadableEventError
from turnlog.domain.ids import aggregate_id
from turnlog.infrastructure.bundle import ForgedBundleError, export_bundle
from turnlog.infrastructure.cli.app import run

__all__ = ["operated"]

Command = Callable[..., Result]
LOST = {"parcel": (LostEvents(2, 2),), "order": (LostEvents(3, 4),), "lamp": ()}
SAID = {"parcel": "event 2 is missing", "order": "events 3 and 4 are missing"}


@pytest.fixture
def damaged(operated: Operated) -> Operated:
    """The database of the page about damaged ones."""
    operated.fill()
    operated.damage()
    return operated


@pytest.fixture
def sessions(damaged: Operated) -> Iterator[SessionService]:
    with SessionService(env=dict(damaged.settings)) as service:
        yield service


@pytest.fixture
def turnlog(
    damaged: Operated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """A command line in the operator's folder."""
    monkeypatch.chdir(damaged.folder)
    for name, value in damaged.variables().items():
        monkeypatch.setenv(name, value)

    def command(*arguments: object) -> Result:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(status, printed.out, " ".join(printed.err.split()))

    return command


@pytest.mark.parametrize("session_id", sorted(LOST))
def test_what_is_lost_is_named_by_versions(sessions: SessionService, session_id: str) -> None:
    assert SessionAudit(sessions).lost(session_id) == LOST[session_id]


def test_what_is_lost_in_front_of_a_version_is_left_out(sessions: SessionService) -> None:
    assert SessionAudit(sessions).lost("parcel", after=2) == ()
    assert SessionAudit(sessions).lost("order", after=2) == LOST["order"]
    assert SessionAudit(sessions).lost("order", after=3) == (LostEvents(4, 4),)


def test_of_a_session_that_is_gone_as_a_whole_nothing_is_told(sessions: SessionService) -> None:
    with pytest.raises(SessionNotFoundError):
        SessionAudit(sessions).lost("invoice")


@pytest.mark.parametrize("session_id", sorted(SAID))
def test_a_log_that_lost_events_is_not_exported(
    sessions: SessionService, tmp_path: Path, session_id: str
) -> None:
    said = f"log of session '{session_id}'.*{SAID[session_id]}"
    with pytest.raises(ForgedBundleError, match=said) as caught:
        export_bundle(sessions, session_id, tmp_path / "bundle.zip")
    assert caught.value.findings == (SAID[session_id],)
    assert not (tmp_path / "bundle.zip").exists()


def test_on_the_command_line_it_is_not_exported_either(turnlog: Command) -> None:
    for session_id, said in SAID.items():
        result = turnlog("audit", "export", session_id, "-o", "bundle.zip")
        assert (result.status, Path("bundle.zip").exists()) == (5, False)
        assert f"{said}. Nothing was exported: see what `turnlog check` says" in result.err
        assert "from its source" not in result.err
    assert turnlog("audit", "export", "lamp", "-o", "bundle.zip").status == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "{}", "-o", "page.html", "--force"),
        ("report", "{}", "-o", "-"),
        ("audit", "timeline", "{}"),
        ("audit", "timeline", "{}", "--json"),
        ("audit", "explain", "{}", "1"),
        ("log", "{}"),
        ("export", "{}"),
        ("export", "{}", "-o", "lines.jsonl", "--force"),
    ],
    ids=" ".join,
)
def test_a_command_says_on_stderr_what_is_missing(turnlog: Command, arguments: tuple[str, ...]) -> None:
    for session_id, said in SAID.items():
        result = turnlog(*(one.format(session_id) for one in arguments))
        assert result.status == 0
        assert f"the log of {session_id} is not whole: {said}. See what `turnlog check` says." in result.err
    assert "not whole" not in turnlog(*(one.format("lamp") for one in arguments)).err


def test_a_view_without_the_end_says_so(turnlog: Command) -> None:
    assert SAID["order"] in turnlog("view", "order").err
    assert turnlog("view", "order", "--at", "1").err == ""
    assert turnlog("view", "lamp").err == ""


def test_the_timeline_has_what_is_missing(sessions: SessionService) -> None:
    audit = SessionAudit(sessions)
    assert audit.timeline("order").lost == LOST["order"]
    assert audit.timeline("lamp").to_dict()["lost"] == []


def test_heads_name_the_end_that_the_row_tells_of(sessions: SessionService) -> None:
    audit = SessionAudit(sessions)
    heads = audit.export_heads()
    ends = {head.aggregate_id: head.version for head in heads.heads}
    assert set(ends.values()) == {4}
    assert {head.aggregate_id for head in heads.lost} == {aggregate_id("order"), aggregate_id("invoice")}
    found = audit.verify(heads=Heads.of_json(heads.to_json())).findings
    histories = {one.aggregate_id for one in found if one.kind is FindingKind.HISTORY}
    assert histories == {aggregate_id("order").hex, aggregate_id("invoice").hex}


def test_the_command_about_heads_says_which_ends_are_lost(turnlog: Command) -> None:
    result = turnlog("audit", "heads", "-o", "heads.json", "--json")
    assert (result.status, result.json["heads"], result.json["lost"]) == (1, 5, 2)
    assert f"aggregate {aggregate_id('order').hex}: the log ends in front of version 4" in result.err
    assert "`turnlog check` names what is gone" in result.err
    assert turnlog("audit", "heads").status == 1


def test_heads_of_whole_logs_are_exported_without_a_word(operated: Operated) -> None:
    operated.fill()
    with SessionService(env=dict(operated.settings)) as sessions:
        sessions.delete("parcel")
        sessions.delete("order")
        assert SessionAudit(sessions).export_heads().lost == ()
        sessions.sweep(purge_after=timedelta(0))
        assert SessionAudit(sessions).export_heads().lost == ()


def test_a_view_that_misses_an_event_says_that_it_is_gone(sessions: SessionService) -> None:
    with pytest.raises(MissingEventError, match="version 2 of session 'parcel' is gone") as caught:
        sessions.view("parcel")
    assert "newer version" not in str(caught.value)
    assert isinstance(caught.value, UnreadableEventError)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert str(again) == str(caught.value)


@pytest.fixture
def summarized(operated: Operated) -> Iterator[tuple[Operated, SessionService]]:
    """A session with a summary at versions 8 and 9, behind its boundary at 7."""
    with SessionService(env=dict(operated.settings)) as sessions:
        sessions.create("s")
        say_turns(sessions, "s", 0, 3)
        compact(sessions, "s")
        yield operated, sessions


def test_a_boundary_that_is_gone_is_no_unknown_session(
    summarized: tuple[Operated, SessionService],
) -> None:
    database, sessions = summarized
    of = f"originator_id = {database.id_of('s')}"
    database.execute(f"DELETE FROM {database.events} WHERE {of} AND originator_version = 7")
    with pytest.raises(MissingEventError, match="version 7 of session 's' is gone"):
        SessionAudit(sessions).explain("s", "u0")


def test_explain_takes_a_version_and_names_versions(summarized: tuple[Operated, SessionService]) -> None:
    audit = SessionAudit(summarized[1])
    explained = audit.explain("s", 1)
    assert explained == audit.explain("s", "u0")
    assert explained.sentence.endswith("; it stands in the summary at versions 8 and 9.")
    assert audit.carried("s", 1) == audit.carried("s", "u0")


def test_lineage_takes_the_compaction_that_wrote_the_summary(
    summarized: tuple[Operated, SessionService],
) -> None:
    audit = SessionAudit(summarized[1])
    boundary = summarized[1].get_event("s", 7)
    assert boundary.boundary
    assert audit.lineage("s", boundary.id) == audit.lineage("s", 7) == audit.lineage("s", 8)


def test_a_compaction_without_a_summary_has_no_lineage(
    summarized: tuple[Operated, SessionService],
) -> None:
    _, sessions = summarized
    say_turns(sessions, "s", 3, 2)
    compact(sessions, "s", summarized=False)
    version = sessions.version("s")
    with pytest.raises(NoSummaryError, match="no compaction that wrote one"):
        SessionAudit(sessions).lineage("s", version)
    sessions.append_message("s", Message.user("Hello?"), event_id="new")
    with pytest.raises(NoSummaryError):
        SessionAudit(sessions).lineage("s", "new")
