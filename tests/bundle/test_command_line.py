"""`turnlog audit export`, `turnlog audit check`, and `turnlog import` of a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bundle.sessions import SID, fill
from tests.contracts.stores import sqlite_env
from tests.infrastructure.cli.conftest import Turnlog, database, turnlog

from turnlog.application import SessionService
from turnlog.infrastructure.bundle import check_bundle

__all__ = ["database", "turnlog"]


@pytest.fixture
def exported(turnlog: Turnlog, database: Path, tmp_path: Path) -> Path:
    """A bundle of the session in the database of the command line."""
    with SessionService(env=sqlite_env(database)) as sessions:
        fill(sessions)
    path = tmp_path / "bundle.zip"
    assert turnlog("audit", "export", SID, "-o", path, "--no-bodies").status == 0
    return path


def test_export_says_what_is_in_the_bundle(turnlog: Turnlog, exported: Path, tmp_path: Path) -> None:
    result = turnlog("audit", "export", "@last", "-o", tmp_path / "again.zip", "--no-bodies", "--json")
    assert (result.status, result.json["boundaries"], result.json["prompts"]) == (0, 2, 3)
    assert (tmp_path / "again.zip").read_bytes() == exported.read_bytes()


def test_export_of_an_unknown_session_is_status_3(turnlog: Turnlog, exported: Path) -> None:
    assert turnlog("audit", "export", "nobody", "-o", exported.with_name("other")).status == 3


def test_export_signs_with_a_key_that_check_demands(turnlog: Turnlog, exported: Path, tmp_path: Path) -> None:
    signed, key = tmp_path / "signed.zip", tmp_path / "key"
    public = turnlog("audit", "export", SID, "-o", signed, "--sign", key, "--no-bodies", "--json").json["key"]
    assert turnlog("audit", "check", signed, "--key", public).status == 0
    assert turnlog("audit", "check", signed, "--key", "0" * 64).status == 5
    assert turnlog("audit", "check", exported, "--key", public).status == 5


def test_former_heads_go_into_a_bundle(turnlog: Turnlog, exported: Path, tmp_path: Path) -> None:
    heads, path = tmp_path / "heads.json", tmp_path / "with-heads.zip"
    assert turnlog("audit", "heads", "-o", heads).status == 0
    assert turnlog("audit", "export", SID, "-o", path, "--heads", heads, "--no-bodies").status == 0
    assert "not signed" in check_bundle(path).notes[-1]


def test_heads_and_a_new_signature_exclude_each_other(
    turnlog: Turnlog, exported: Path, tmp_path: Path
) -> None:
    result = turnlog("audit", "export", SID, "-o", exported, "--heads", exported, "--sign", tmp_path / "key")
    assert result.status == 2


def test_check_says_what_the_bundle_holds(turnlog: Turnlog, exported: Path) -> None:
    result = turnlog("audit", "check", exported)
    assert result.status == 0
    assert "2 compactions, 3 recorded requests" in result.out
    assert "3 of 3 requests have no body" in result.err


def test_a_bundle_is_imported_into_a_new_database(
    turnlog: Turnlog, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLOG_DB", str(tmp_path / "new.db"))
    assert turnlog("import", exported).status == 0
    assert turnlog("audit", "verify").status == 0
    second = turnlog("import", exported, "--json")
    assert [one["is_repeat"] for one in second.json] == [True]


def test_a_bundle_that_is_cut_off_makes_no_database(
    turnlog: Turnlog, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLOG_DB", str(tmp_path / "new.db"))
    exported.write_bytes(exported.read_bytes()[:-1])
    result = turnlog("import", exported, "--json")
    assert (result.status, result.error["error"]) == (5, "UnreadableBundleError")
    assert not (tmp_path / "new.db").exists()


def test_bundles_and_other_files_are_not_mixed(turnlog: Turnlog, exported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("{}", "utf-8")
    assert turnlog("import", exported, other).status == 2
