"""The command as a process: pipes, signals, terminals, start-up."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.infrastructure.cli.conftest import AIRLINE, SMALL_TALK

from turnlog.application import SessionService

COMMAND = (sys.executable, "-c", "from turnlog.infrastructure.cli import main; main()")
COLOR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    hidden = ("TURNLOG_DB", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "TURNLOG_DB": str(tmp_path / "turnlog.db"), "TERM": "xterm-256color"}


@pytest.fixture
def long_session(environment: Mapping[str, str], tmp_path: Path) -> None:
    """A session that is longer than what a pipe holds."""
    messages = [{"role": "user", "content": f"{number} " + "long " * 2000} for number in range(60)]
    (tmp_path / "long.json").write_text(json.dumps({"messages": messages}))
    assert turnlog("import", tmp_path / "long.json", env=environment).returncode == 0


def turnlog(*arguments: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def on_a_terminal(*arguments: object, env: Mapping[str, str]) -> str:
    """What the command prints when stdout and stderr are a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": "80", "LINES": "24", **env}
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], env=size, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        printed = b""
        try:
            while chunk := os.read(ours, 65536):
                printed += chunk
        except OSError:  # the other end is closed
            pass
        process.wait(timeout=60)
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("command", "status"),
    [(("version",), 0), (("explode",), 2), (("sessions",), 3), (("import", "missing.json"), 5)],
    ids=str,
)
def test_the_status_is_that_of_the_process(
    environment: Mapping[str, str], command: tuple[str, ...], status: int
) -> None:
    result = turnlog(*command, env=environment)

    assert (result.returncode, "Traceback" in result.stderr) == (status, False)


@pytest.mark.usefixtures("long_session")
@pytest.mark.parametrize(
    "command",
    ["log @last", "log @last --json", "view @last", "view @last --as openai", "export @last", "search long"],
)
def test_a_reader_that_leaves_early_is_no_error(environment: Mapping[str, str], command: str) -> None:
    with subprocess.Popen(
        [*COMMAND, *command.split()], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        complaints = process.stderr.read()

    assert (process.returncode, complaints) == (0, b"")


@pytest.mark.usefixtures("long_session")
def test_an_interrupt_ends_with_130_and_one_line(environment: Mapping[str, str]) -> None:
    with subprocess.Popen(
        [*COMMAND, "export", "@last"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(10)  # it runs, and is stopped by a full pipe
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)

    assert (process.returncode, complaints) == (130, b"turnlog: Interrupted.\n")


def test_a_terminal_gets_colors(environment: dict[str, str]) -> None:
    turnlog("import", AIRLINE, env=environment)

    assert COLOR.search(on_a_terminal("log", "@last", env=environment))


def test_with_no_color_a_terminal_gets_no_escape_sequences(environment: dict[str, str]) -> None:
    plain = {**environment, "NO_COLOR": "1"}
    imported = on_a_terminal("import", AIRLINE, env=plain)

    printed = [on_a_terminal(*command, "@last", env=plain) for command in (("log",), ("view",))]
    assert "written" in imported
    assert "\x1b" not in "".join([imported, *printed])


def test_a_pipe_gets_no_escape_sequences(environment: Mapping[str, str]) -> None:
    turnlog("import", AIRLINE, env=environment)

    for command in ("log @last", "view @last"):
        assert "\x1b" not in turnlog(*command.split(), env=environment).stdout


def test_on_a_terminal_lines_fit_into_80_columns(environment: dict[str, str]) -> None:
    turnlog("import", AIRLINE, SMALL_TALK, env=environment)

    for command in (
        "sessions",
        "log @last",
        "view @last",
        "search flight お",
        "strategies",
        "sweep",
        "--help",
        "view --help",
        "compact --help",
        "search --help",
    ):
        printed = on_a_terminal(*command.split(), env={**environment, "NO_COLOR": "1", "TERM": "dumb"})
        assert max(map(cell_len, printed.splitlines())) <= 80, command


def test_a_long_title_leaves_room_for_the_id(environment: dict[str, str], tmp_path: Path) -> None:
    session_id = "0192f3c4-7e1a-7c55-9d8e-aa11bb22cc33"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(tmp_path / "turnlog.db")}
    with SessionService(env=env) as sessions:
        sessions.create(session_id, metadata={"title": "航空券 " * 40})

    printed = on_a_terminal("sessions", env={**environment, "NO_COLOR": "1", "TERM": "dumb"}).splitlines()

    assert printed[1].startswith(f"{session_id}  20")
    assert max(map(cell_len, printed)) <= 80


def test_a_terminal_shows_the_text_around_a_hit(environment: dict[str, str], tmp_path: Path) -> None:
    messages = [{"role": "user", "content": f"{'before ' * 400}the parcel{' after' * 400}"}]
    (tmp_path / "chat.json").write_text(json.dumps({"messages": messages}))
    turnlog("import", tmp_path / "chat.json", env=environment)

    printed = on_a_terminal(
        "search", "PARCEL", env={**environment, "NO_COLOR": "1", "TERM": "dumb"}
    ).splitlines()

    assert "before the parcel after" in printed[1]
    assert len(printed) <= 4


def test_errors_break_between_words_on_a_terminal_and_nowhere_in_a_pipe(environment: dict[str, str]) -> None:
    environment.update({"TURNLOG_DB": "no.db", "COLUMNS": "30"})
    whole = turnlog("view", "nobody", env=environment).stderr
    assert whole.count("\n") == 1
    lines = on_a_terminal("view", "nobody", env=environment).splitlines()
    assert max(map(len, lines)) <= 30
    assert " ".join(map(str.strip, lines)) == whole.strip()


def test_a_terminal_that_says_nothing_of_its_size_shows_errors(environment: dict[str, str]) -> None:
    environment["COLUMNS"] = "0"
    assert "There is no database" in on_a_terminal("view", "nobody", env=environment)


def test_colors_that_are_forced_cut_no_line_of_a_pipe(environment: dict[str, str], tmp_path: Path) -> None:
    environment["FORCE_COLOR"] = "1"
    environment["TURNLOG_DB"] = str(tmp_path / ("far" * 60) / "turnlog.db")
    assert environment["TURNLOG_DB"] in turnlog("view", "nobody", env=environment).stderr


def test_a_pipe_gets_whole_lines(environment: Mapping[str, str]) -> None:
    turnlog("import", AIRLINE, env=environment)

    lines = turnlog("log", "@last", "--limit", 100, env=environment).stdout.splitlines()

    assert max(map(len, lines)) > 5000


def test_a_progress_bar_is_for_terminals_only(environment: Mapping[str, str]) -> None:
    assert "Importing" in on_a_terminal("import", AIRLINE, env=environment)
    assert turnlog("import", AIRLINE, env=environment).stderr == ""


@pytest.mark.parametrize(
    "command", ["log @last", "view @last", "view @last --json", "export @last", "sessions", "search colis"]
)
def test_an_output_that_is_not_utf8_loses_nothing(
    environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    messages = [{"role": "user", "content": "Où est mon colis ? 荷物 😀"}]
    (tmp_path / "chat.json").write_text(json.dumps({"messages": messages}))
    turnlog("import", tmp_path / "chat.json", env=environment)

    result = turnlog(*command.split(), env={**environment, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})

    assert (result.returncode, result.stderr) == (0, "")
    if "--json" in command:
        assert json.loads(result.stdout)["messages"][0]["parts"][0]["content"] == messages[0]["content"]


@pytest.mark.parametrize("command", ["version", "--help"])
def test_what_needs_no_database_loads_nothing_of_it(environment: Mapping[str, str], command: str) -> None:
    program = (
        "import sys\n"
        "from turnlog.infrastructure.cli.app import run\n"
        f"run([{command!r}])\n"
        "print(sorted({'tiktoken', 'openai', 'eventsourcing', 'sqlite3', 'httpx'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert result.stdout.splitlines()[-1] == "[]"


def test_without_its_extra_the_command_says_what_to_install(environment: Mapping[str, str]) -> None:
    program = f"import sys; sys.modules['typer'] = None; {COMMAND[2]}"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )

    assert (result.returncode, "pip install 'turnlog[cli]'" in result.stderr) == (2, True)


def test_showing_a_log_loads_no_vocabulary(environment: Mapping[str, str]) -> None:
    turnlog("import", AIRLINE, env=environment)
    program = (
        "import sys\n"
        "from turnlog.infrastructure.cli.app import run\n"
        "run(['log', '@last'])\n"
        "print(sorted({'tiktoken', 'openai', 'anthropic', 'httpx'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert result.stdout.splitlines()[-1] == "[]"


def test_the_demo_compacts_twice_and_the_commands_it_names_work(
    environment: dict[str, str], tmp_path: Path
) -> None:
    shown = turnlog("demo", env={**environment, "TMPDIR": str(tmp_path)}).stdout

    assert shown.count("── compaction:") == 2
    assert max(map(len, shown.splitlines())) <= 80 + len(str(tmp_path))
    steps = [line.strip() for line in shown.partition("Try next\n")[2].splitlines()]
    assert len(steps) == 9
    assert max(map(len, steps[1:])) <= 78
    python = f"{shlex.quote(sys.executable)} -c {shlex.quote(COMMAND[2])}"
    script = "\n".join(["set -e", f'turnlog() {{ {python} "$@"; }}', *steps])
    result = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "What the model is told · airline · version 60" in result.stdout
    assert "Gift Card 6276644" in result.stdout
