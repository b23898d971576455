"""Files that commands write: never the database, never what they read, none that exists without --force."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contracts.stores import sqlite_env
from tests.infrastructure.cli.conftest import Turnlog

from turnlog.application import SessionService
from turnlog.application.audit import SessionAudit
from turnlog.domain.messages import Message
from turnlog.infrastructure.bundle import FileTakenError, export_bundle

WRITING: tuple[tuple[str, ...], ...] = (
    ("export", "s"),
    ("report", "s"),
    ("audit", "export", "s"),
    ("audit", "heads"),
    ("audit", "told", "s"),
)


def _relative(file: Path, folder: Path) -> Path:
    return Path(os.path.relpath(file))


def _dotted(file: Path, folder: Path) -> Path:
    return file.parent / ".." / file.parent.name / file.name


def _symlink(file: Path, folder: Path) -> Path:
    (folder / "link").symlink_to(file)
    return folder / "link"


def _hard_link(file: Path, folder: Path) -> Path:
    (folder / "link").hardlink_to(file)
    return folder / "link"


@pytest.fixture
def told(database: Path) -> Path:
    """A database with one session, of which a prompt was recorded."""
    with SessionService(env=sqlite_env(database)) as sessions:
        sessions.create(session_id="s")
        sessions.append_message("s", Message.user("Where is my parcel?"))
        SessionAudit(sessions).record_prompt("s", call_id="call-1", body=b'{"model":"m"}')
    return database


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
@pytest.mark.parametrize("beside", ["", "-wal", "-shm", "-journal"])
def test_no_command_writes_over_the_database_even_with_force(
    turnlog: Turnlog, told: Path, arguments: tuple[str, ...], beside: str
) -> None:
    before = told.read_bytes()
    result = turnlog(*arguments, "-o", f"{told}{beside}", "--force")
    assert (result.status, "Name another file" in result.err) == (2, True)
    assert told.read_bytes() == before
    assert turnlog("view", "s").status == 0


@pytest.mark.parametrize("spelled", [_relative, _dotted, _symlink, _hard_link])
def test_the_database_is_known_by_any_name(
    turnlog: Turnlog, told: Path, tmp_path: Path, spelled: Callable[[Path, Path], Path]
) -> None:
    result = turnlog("export", "s", "-o", spelled(told, tmp_path), "--force")
    assert (result.status, "never overwritten" in result.err) == (2, True)


def test_a_database_that_is_named_through_a_link_is_known_too(
    turnlog: Turnlog, told: Path, tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(told)
    for output in (told, Path(f"{told}-wal"), tmp_path / "link.db"):
        assert turnlog("export", "s", "--db", tmp_path / "link.db", "-o", output, "--force").status == 2


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_file_that_exists_is_kept_without_force(
    turnlog: Turnlog, told: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "mine"
    file.write_text("mine", "utf-8")
    result = turnlog(*arguments, "-o", file)
    assert (result.status, "or replace it with --force." in result.err) == (5, True)
    assert file.read_text("utf-8") == "mine"


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_file_that_exists_is_replaced_with_force(
    turnlog: Turnlog, told: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    file = tmp_path / "mine"
    file.write_text("mine", "utf-8")
    assert turnlog(*arguments, "-o", file, "--force").status == 0
    assert file.read_bytes() != b"mine"


def test_what_a_command_reads_is_not_written_over(turnlog: Turnlog, told: Path, tmp_path: Path) -> None:
    heads, key = tmp_path / "heads.json", tmp_path / "key"
    turnlog("audit", "heads", "-o", heads, "--sign", key)
    before = heads.read_bytes(), key.read_bytes()
    for option, file in (("--heads", heads), ("--sign", key)):
        result = turnlog("audit", "export", "s", option, file, "-o", file, "--force")
        assert (result.status, "is read by this command" in result.err) == (2, True)
    assert turnlog("audit", "heads", "--sign", key, "-o", key, "--force").status == 2
    assert (heads.read_bytes(), key.read_bytes()) == before


def test_a_key_is_not_made_where_the_database_has_its_files(turnlog: Turnlog, told: Path) -> None:
    assert turnlog("audit", "heads", "--sign", f"{told}-journal").status == 2
    assert not Path(f"{told}-journal").exists()


def test_a_backup_is_not_made_where_the_database_has_its_files(turnlog: Turnlog, told: Path) -> None:
    result = turnlog("backup", f"{told}-journal")
    assert (result.status, "never overwritten" in result.err) == (2, True)


def test_a_page_of_a_report_cannot_become_the_database(turnlog: Turnlog, told: Path, tmp_path: Path) -> None:
    told.rename(tmp_path / "page-2.db")
    result = turnlog("report", "s", "--db", tmp_path / "page-2.db", "-o", tmp_path / "page.db", "--force")
    assert result.status == 2


@pytest.mark.parametrize("arguments", [("export", "s"), ("audit", "heads")], ids=" ".join)
def test_a_dash_is_standard_output(
    turnlog: Turnlog, told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = turnlog(*arguments, "-o", "-")
    assert (result.status, result.out.startswith("{")) == (0, True)
    assert not Path("-").exists()


def test_a_report_goes_to_standard_output(turnlog: Turnlog, told: Path) -> None:
    result = turnlog("report", "s", "-o", "-")
    assert (result.status, result.out.startswith("<!doctype html>")) == (0, True)


def test_a_bundle_is_no_text_to_print(turnlog: Turnlog, told: Path) -> None:
    result = turnlog("audit", "export", "s", "-o", "-")
    assert (result.status, "--output" in result.err) == (2, True)


def test_a_file_that_cannot_be_made_is_named_as_it_was_given(turnlog: Turnlog, told: Path) -> None:
    for arguments in WRITING:
        result = turnlog(*arguments, "-o", "/nowhere/x")
        assert (result.status, "/nowhere/x" in result.err, ".x." in result.err) == (5, True, False)


def test_what_a_device_gets_is_not_asked_about(turnlog: Turnlog, told: Path) -> None:
    assert turnlog("export", "s", "-o", os.devnull).status == 0


def test_a_link_stays_a_link_when_its_file_is_replaced(turnlog: Turnlog, told: Path, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old", "utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    assert turnlog("export", "s", "-o", tmp_path / "link", "--force").status == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_text("utf-8").startswith("{")


def test_a_bundle_is_replaced_from_python_only_when_that_is_said(told: Path, tmp_path: Path) -> None:
    file = tmp_path / "bundle.zip"
    file.write_text("mine", "utf-8")
    with SessionService(env=sqlite_env(told)) as sessions:
        with pytest.raises(FileTakenError, match="replace=True"):
            export_bundle(sessions, "s", file)
        assert file.read_text("utf-8") == "mine"
        export_bundle(sessions, "s", file, replace=True)
    assert file.read_bytes().startswith(b"PK")


@pytest.mark.parametrize(
    "arguments",
    [
        *((*arguments, "-o", "") for arguments in WRITING),
        ("audit", "heads", "--sign", ""),
        ("audit", "verify", "--heads", ""),
        ("audit", "check", ""),
        ("import", ""),
        ("backup", ""),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_none_of_a_file(turnlog: Turnlog, told: Path, arguments: tuple[str, ...]) -> None:
    result = turnlog(*arguments)
    assert result.status == 2
    assert "The name of a file is empty." in result.err
