from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from turnlog.infrastructure.cli.app import run

AIRLINE = Path(str(files("turnlog.infrastructure.demo") / "airline.json"))


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A database with one imported conversation; gives the folder it is in."""
    monkeypatch.setenv("TURNLOG_DB", str(tmp_path / "turnlog.db"))
    assert run(["import", str(AIRLINE)]) == 0
    capsys.readouterr()
    return tmp_path


def test_the_command_writes_the_page_and_says_where(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = imported / "report.html"
    assert run(["report", "@last", "-o", str(file)]) == 0
    size = file.stat().st_size
    assert capsys.readouterr().out == f"Wrote {file} ({size:,} bytes). Open it in a browser.\n"


def test_the_command_says_as_json_what_it_wrote(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = imported / "report.html"
    assert run(["report", "@last", "-o", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["files"], said["messages"]) == ([str(file)], 62)


def test_a_file_that_exists_is_refused_and_with_force_replaced(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = imported / "report.html"
    file.write_text("mine", "utf-8")
    assert run(["report", "@last", "-o", str(file)]) == 5
    assert "--force" in capsys.readouterr().err
    assert file.read_text("utf-8") == "mine"
    assert run(["report", "@last", "-o", str(file), "--force"]) == 0


def test_a_session_that_does_not_exist_is_not_found(imported: Path) -> None:
    assert run(["report", "nobody", "-o", str(imported / "report.html")]) == 3


def test_without_a_file_the_usage_is_told(imported: Path) -> None:
    assert run(["report", "@last"]) == 2


def test_a_folder_that_does_not_exist_is_bad_input(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "@last", "-o", str(imported / "nowhere" / "report.html")]) == 5
    assert "nowhere" in capsys.readouterr().err


def test_without_the_extra_the_command_says_what_to_install(
    imported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run(["report", "@last", "-o", str(imported / "report.html")]) == 5
    assert "pip install 'turnlog[report]'" in capsys.readouterr().err


def test_the_page_of_a_branch_says_so(imported: Path) -> None:
    file = imported / "report.html"
    assert run(["report", "@last", "-o", str(file), "--branch", "orch.researcher"]) == 0
    assert "orch.researcher" in file.read_text("utf-8")
