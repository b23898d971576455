"""`backup`, `restore`, and `erasures`, which says what must be deleted again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.infrastructure.cli.conftest import AIRLINE, OpenService, Turnlog

from turnlog.domain.messages import Message


@pytest.fixture
def backup(turnlog: Turnlog, imported: str, tmp_path: Path) -> Path:
    """A backup of the database with one session."""
    file = tmp_path / "backup.db"
    assert turnlog("backup", file).status == 0
    return file


@pytest.fixture
def erasures_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where deletions are remembered."""
    file = tmp_path / "erasures.txt"
    monkeypatch.setenv("TURNLOG_ERASURES_FILE", str(file))
    return file


def test_a_backup_restored_is_the_database_as_it_was(
    turnlog: Turnlog, imported: str, backup: Path, tmp_path: Path
) -> None:
    exported = turnlog("export", imported).out
    turnlog("delete", imported, "--yes")

    assert turnlog("restore", backup, "--db", tmp_path / "restored.db").status == 0

    assert turnlog("export", imported, "--db", tmp_path / "restored.db").out == exported


def test_a_backup_is_made_while_another_program_uses_the_database(
    turnlog: Turnlog, open_service: OpenService, tmp_path: Path
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("not yet in the file itself"))

        assert turnlog("backup", tmp_path / "backup.db").status == 0

    turnlog("restore", tmp_path / "backup.db", "--db", tmp_path / "restored.db")
    assert "not yet in the file itself" in turnlog("view", "s", "--db", tmp_path / "restored.db").out


def test_a_backup_leaves_the_database_as_it_is(turnlog: Turnlog, database: Path, backup: Path) -> None:
    before = database.read_bytes()

    turnlog("backup", backup.with_name("second.db"))

    assert database.read_bytes() == before


def test_a_backup_as_json_says_how_large_it_is(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"

    assert turnlog("backup", file, "--json").json == {"backup": str(file), "bytes": file.stat().st_size}


def test_a_backup_never_overwrites(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("Dear diary")

    result = turnlog("backup", tmp_path / "diary.txt")

    assert (result.status, "exists" in result.err) == (5, True)
    assert (tmp_path / "diary.txt").read_text() == "Dear diary"


def test_a_backup_into_a_folder_that_does_not_exist_is_refused(
    turnlog: Turnlog, imported: str, tmp_path: Path
) -> None:
    assert turnlog("backup", tmp_path / "missing" / "backup.db").status == 5


def test_a_backup_is_read_only_once_it_is_restored(turnlog: Turnlog, backup: Path) -> None:
    before = backup.read_bytes()

    result = turnlog("sessions", "--db", backup)

    assert (result.status, "turnlog restore" in result.err) == (5, True)
    assert backup.read_bytes() == before


def test_a_restore_never_overwrites(turnlog: Turnlog, imported: str, backup: Path) -> None:
    result = turnlog("restore", backup)

    assert (result.status, "exists" in result.err) == (5, True)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_restore_is_refused_where_an_earlier_database_left_its_log(
    turnlog: Turnlog, backup: Path, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / f"restored.db{suffix}").write_bytes(b"what was written last")

    result = turnlog("restore", backup, "--db", tmp_path / "restored.db")

    assert (result.status, "move it away" in result.err) == (5, True)
    assert not (tmp_path / "restored.db").exists()


def test_a_restore_into_a_folder_is_refused(turnlog: Turnlog, backup: Path) -> None:
    assert turnlog("restore", backup, "--db", "/").status == 5


@pytest.mark.parametrize("file", ["missing.db", "diary.txt"])
def test_what_is_no_backup_is_not_restored(turnlog: Turnlog, tmp_path: Path, file: str) -> None:
    (tmp_path / "diary.txt").write_text("Dear diary, " * 100)

    result = turnlog("restore", tmp_path / file, "--db", tmp_path / "restored.db")

    assert (result.status, file in result.err) == (5, True)
    assert not (tmp_path / "restored.db").exists()


def test_a_restored_database_can_be_written(
    turnlog: Turnlog, imported: str, backup: Path, tmp_path: Path
) -> None:
    turnlog("restore", backup, "--db", tmp_path / "restored.db")

    assert turnlog("import", AIRLINE, "--db", tmp_path / "restored.db").status == 0
    assert turnlog("delete", imported, "--yes", "--db", tmp_path / "restored.db").status == 0


def test_what_a_restore_brought_back_is_listed(
    turnlog: Turnlog, imported: str, erasures_file: Path, backup: Path, tmp_path: Path
) -> None:
    turnlog("delete", imported, "--yes")
    turnlog("restore", backup, "--db", tmp_path / "restored.db")

    result = turnlog("erasures", "--since", "2020-01-01", "--db", tmp_path / "restored.db", "--json")

    assert (result.status, [due["id"] for due in result.json]) == (0, [imported])


def test_what_was_deleted_again_is_listed_no_longer(
    turnlog: Turnlog, imported: str, erasures_file: Path, backup: Path, tmp_path: Path
) -> None:
    turnlog("delete", imported, "--yes")
    turnlog("restore", backup, "--db", tmp_path / "restored.db")
    assert imported in turnlog("erasures", "--since", "2020-01-01", "--db", tmp_path / "restored.db").out

    turnlog("delete", imported, "--yes", "--db", tmp_path / "restored.db")

    result = turnlog("erasures", "--since", "2020-01-01", "--db", tmp_path / "restored.db")
    assert (result.status, result.out) == (1, "Nothing has to be deleted again.\n")


def test_a_redacted_message_that_is_back_is_listed_with_its_version(
    turnlog: Turnlog, imported: str, erasures_file: Path, backup: Path, tmp_path: Path
) -> None:
    restored = ("--db", tmp_path / "restored.db")
    redacted = ("redact", imported, "--version", "2", "--reason", "asked for", "--by", "ada", "--yes")
    turnlog(*redacted)
    turnlog("restore", backup, *restored)
    listing = ("erasures", "--since", "2020-01-01", *restored)

    assert [(due["id"], due["version"]) for due in turnlog(*listing, "--json").json] == [(imported, 2)]
    assert "`turnlog redact ID --version N" in turnlog(*listing).out

    assert turnlog(*redacted, *restored).status == 0
    assert turnlog(*listing).status == 1


def test_without_a_list_of_erasures_it_says_how_to_keep_one(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("erasures", "--since", "2020-01-01")

    assert (result.status, "TURNLOG_ERASURES_FILE" in result.err) == (2, True)


LINE = "2026-01-02T03:04:05+00:00 0123456789abcdef0123456789abcdef 2 " + "a" * 64


@pytest.mark.parametrize(
    "damaged",
    [
        "yesterday 0123456789abcdef0123456789abcdef",
        LINE.replace("2026-01", "2026-91"),
        LINE.replace("+00:00", ""),
        LINE[:-1],
        LINE[:40],
        LINE + " and more",
        "\udcff",
    ],
)
def test_a_line_of_the_list_of_erasures_that_cannot_be_read_is_named(
    turnlog: Turnlog, imported: str, erasures_file: Path, damaged: str
) -> None:
    turnlog("delete", imported, "--yes")
    text = erasures_file.read_text()
    erasures_file.write_bytes(f"{text}\n{damaged}\n{text}".encode(errors="surrogateescape"))

    result = turnlog("erasures", "--since", "2020-01-01")

    assert (result.status, result.out) == (5, "")
    assert f"Line {len(text.split(chr(10))) + 1} of the list of erasures" in result.err
    assert damaged not in result.err


@pytest.mark.parametrize("size", range(0, len(LINE), 7))
def test_a_line_that_a_crash_cut_off_is_passed_over(
    turnlog: Turnlog, imported: str, erasures_file: Path, backup: Path, tmp_path: Path, size: int
) -> None:
    erasures_file.write_text(f"\n{LINE[:size]}")
    turnlog("delete", imported, "--yes")
    with erasures_file.open("a") as file:
        file.write(f"\n{LINE[:size]}")
    turnlog("restore", backup, "--db", tmp_path / "restored.db")

    result = turnlog("erasures", "--since", "2020-01-01", "--db", tmp_path / "restored.db", "--json")

    assert (result.status, [due["id"] for due in result.json]) == (0, [imported])


def test_a_deletion_is_remembered_behind_a_line_that_cannot_be_read(
    turnlog: Turnlog, imported: str, erasures_file: Path
) -> None:
    erasures_file.write_bytes(b"\xff\n\n")
    assert turnlog("delete", imported, "--yes").status == 0
    assert erasures_file.read_bytes().count(b"\n") > 3
