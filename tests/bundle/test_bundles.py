"""A session goes into a bundle and comes out of it as it was."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.audit.logs import WordCount
from tests.audit.renderers import RENDERERS
from tests.bundle.sessions import SID, events_of, files_of, fill, filled, rechained, with_event
from tests.contracts.stores import STORES, sqlite_env

from turnlog.application.audit import ForeignEvidenceError, SessionAudit
from turnlog.application.service import SessionService
from turnlog.domain.attributes import SessionAttributes
from turnlog.domain.errors import SessionIdUnavailableError, SessionNotFoundError
from turnlog.domain.messages import Message
from turnlog.domain.query import EventQuery
from turnlog.infrastructure.bundle import (
    ForgedBundleError,
    UnreadableBundleError,
    check_bundle,
    export_bundle,
    import_bundle,
    verify,
)


def test_the_same_session_gives_the_same_bytes(tmp_path: Path) -> None:
    with filled() as sessions:
        for name in ("one", "other"):
            export_bundle(sessions, SID, tmp_path / name, renderers=RENDERERS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_the_bodies_are_those_that_were_sent(bundle: Path) -> None:
    with filled() as sessions:
        audit = SessionAudit(sessions, renderers=RENDERERS)
        calls = [entry.id for entry in audit.timeline(SID).entries if entry.kind == "call"]
        sent = [audit.told(SID, calls[0], attempt=2).body, audit.told(SID, calls[1]).body]
    prompts = [json.loads(line) for line in files_of(bundle)[verify.PROMPTS].splitlines()]
    assert [len(prompts), *(prompt["text"].encode() for prompt in prompts[1:])] == [3, *sent]


def test_a_body_whose_renderer_is_not_installed_is_named_as_missing(tmp_path: Path) -> None:
    with filled() as sessions:
        written = export_bundle(sessions, SID, tmp_path / "b.zip")
    assert written.without_body == written.prompts == 3
    assert "3 of 3 requests have no body" in check_bundle(tmp_path / "b.zip").notes[0]
    prompts = files_of(tmp_path / "b.zip")[verify.PROMPTS].splitlines()
    assert json.loads(prompts[0])["missing"].startswith("UnknownRendererError")


@pytest.mark.parametrize("name", sorted(STORES))
def test_an_imported_bundle_has_the_same_chain_and_verifies_on_every_store(
    name: str, bundle: Path, tmp_path: Path
) -> None:
    store = STORES[name](tmp_path)
    sessions = store.service()
    import_bundle(sessions, bundle)
    audit = SessionAudit(sessions)
    found = audit.verify(SID)
    head = audit.stored(SID).events[-1].chain
    sessions.close()
    assert (found.findings, head) == ((), check_bundle(bundle).head)


def test_an_imported_session_has_the_same_views(bundle: Path, tmp_path: Path) -> None:
    with filled() as there, SessionService(env=sqlite_env(tmp_path / "here.db")) as here:
        export_bundle(there, SID, tmp_path / "b.zip", renderers=RENDERERS)
        import_bundle(here, tmp_path / "b.zip")
        newest = there.view(SID).version
        views = [(there.view(SID, at_version=v), here.view(SID, at_version=v)) for v in range(newest + 1)]
    assert [one for one, other in views if (one.events, one.version) != (other.events, other.version)] == []


@pytest.mark.parametrize("name", sorted(STORES))
def test_an_id_of_an_imported_event_is_a_repeat(name: str, bundle: Path, tmp_path: Path) -> None:
    sessions = STORES[name](tmp_path).service()
    import_bundle(sessions, bundle)
    again = sessions.append_message(SID, Message.user("question 0"), event_id="u0")
    sessions.close()
    assert again.is_repeat


def test_an_imported_session_goes_on(bundle: Path, tmp_path: Path) -> None:
    with SessionService(env=sqlite_env(tmp_path / "here.db")) as sessions:
        version = import_bundle(sessions, bundle).version
        event = sessions.append_message(SID, Message.user("And now?"))
        assert event.version == version + 1
        assert SessionAudit(sessions).verify().is_whole


def test_an_imported_session_is_found_by_search_and_in_the_directory(bundle: Path, tmp_path: Path) -> None:
    with SessionService(env=sqlite_env(tmp_path / "here.db")) as sessions:
        import_bundle(sessions, bundle)
        assert [row.session_id for row in sessions.list_sessions()] == [SID]
        assert [event.id for event in sessions.search_events(SID, EventQuery(keywords="question 0"))] == [
            "u0"
        ]


def test_a_second_import_changes_nothing(bundle: Path) -> None:
    with SessionService() as sessions:
        import_bundle(sessions, bundle)
        sessions.append_message(SID, Message.user("And now?"))
        assert import_bundle(sessions, bundle).is_repeat


def test_an_id_that_is_used_here_is_refused(bundle: Path) -> None:
    with SessionService() as sessions:
        sessions.create(SID)
        with pytest.raises(SessionIdUnavailableError):
            import_bundle(sessions, bundle)


def test_an_id_that_was_deleted_here_is_refused(bundle: Path) -> None:
    with SessionService() as sessions:
        import_bundle(sessions, bundle)
        sessions.delete(SID)
        with pytest.raises(SessionIdUnavailableError):
            import_bundle(sessions, bundle)


def test_a_session_of_another_namespace_is_refused(bundle: Path) -> None:
    with SessionService(namespace="acme") as sessions:
        with pytest.raises(ForeignEvidenceError, match="namespace"):
            import_bundle(sessions, bundle)
        assert sessions.find(SID) is None


def test_a_session_comes_back_in_its_own_namespace(tmp_path: Path) -> None:
    with filled(namespace="acme") as sessions:
        export_bundle(sessions, SID, tmp_path / "b.zip", renderers=RENDERERS)
    with SessionService(namespace="acme") as sessions:
        import_bundle(sessions, tmp_path / "b.zip")
        assert SessionAudit(sessions).verify(SID).is_whole


def test_a_scope_takes_its_own_sessions_only(tmp_path: Path) -> None:
    with SessionService() as sessions:
        sessions.create("of ada", metadata={SessionAttributes.PRINCIPAL_NAME: "ada"})
        export_bundle(sessions, "of ada", tmp_path / "b.zip")
        with pytest.raises(SessionNotFoundError):
            export_bundle(sessions.scoped_to("eve"), "of ada", tmp_path / "eve.zip")
    with SessionService() as sessions:
        with pytest.raises(ForeignEvidenceError, match="principal"):
            import_bundle(sessions.scoped_to("eve"), tmp_path / "b.zip")
        import_bundle(sessions.scoped_to("ada"), tmp_path / "b.zip")
        assert sessions.scoped_to("ada").find("of ada") is not None


def test_a_log_that_was_changed_is_not_exported(tmp_path: Path) -> None:
    file = tmp_path / "sessions.db"
    with SessionService(env=sqlite_env(file)) as sessions:
        fill(sessions)
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(
                "UPDATE stored_events SET state = CAST(replace(CAST(state AS TEXT), 'question', 'quest') "
                "AS BLOB) WHERE originator_version = 2"
            )
        with pytest.raises(ForgedBundleError, match="event 2"):
            export_bundle(sessions, SID, tmp_path / "b.zip", renderers=RENDERERS)
    assert not (tmp_path / "b.zip").exists()


def test_a_bundle_that_is_cut_off_says_so(bundle: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.zip"
    cut.write_bytes(bundle.read_bytes()[:-100])
    with SessionService() as sessions, pytest.raises(UnreadableBundleError, match="cut off"):
        import_bundle(sessions, cut)


def test_a_forged_bundle_says_which_session_and_where(bundle: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.zip"
    files = with_event(files_of(bundle), 3, {"salt": "0" * 32})
    forged.write_bytes(verify.write_zip(files))
    with SessionService() as sessions:
        with pytest.raises(ForgedBundleError, match="event 3") as caught:
            import_bundle(sessions, forged)
        assert sessions.find(SID) is None
    assert caught.value.session_id == SID


def test_a_state_that_does_not_follow_is_found_though_the_chain_was_made_anew(
    bundle: Path, tmp_path: Path
) -> None:
    """Only turnlog itself folds the states that events carry."""
    files = files_of(bundle)
    events = events_of(files)
    events[2]["fields"]["state"] = events[2]["fields"]["state"].replace("1", "2", 1)
    forged = tmp_path / "forged.zip"
    forged.write_bytes(verify.write_zip(rechained(files, events)))
    check_bundle(forged)
    with SessionService() as sessions, pytest.raises(ForgedBundleError, match="event 2"):
        import_bundle(sessions, forged)


def test_the_rehearsal_of_an_import_ignores_the_environment(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionService(token_estimator=WordCount()) as sessions:
        for name, value in sqlite_env(tmp_path / "other.db").items():
            monkeypatch.setenv(name, value)
        import_bundle(sessions, bundle)
    assert not (tmp_path / "other.db").exists()


def test_fill_makes_every_kind_of_event(bundle: Path) -> None:
    kinds = {event["topic"].removeprefix(verify.TOPIC) for event in events_of(files_of(bundle))}
    assert set(verify.FIELDS) - kinds == {"ContentRedacted", "TurnMarked"}
    assert fill.__doc__
