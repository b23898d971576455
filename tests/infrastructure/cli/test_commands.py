"""What each command does, in this process."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta, timezone
from inspect import cleandoc
from pathlib import Path
from uuid import UUID

import pytest
from tests.infrastructure.cli.conftest import AIRLINE, SMALL_TALK, OpenService, Turnlog

from turnlog.domain.log import NewEvent
from turnlog.domain.messages import Message, ToolCallPart, ToolCallResponsePart
from turnlog.infrastructure.cli.app import app
from turnlog.infrastructure.cli.output import console
from turnlog.infrastructure.cli.reading import counted, sessions_table
from turnlog.infrastructure.cli.settings import Status

LONG_ID = str(UUID(int=7))


def test_import_says_what_was_mapped_and_into_which_session(turnlog: Turnlog) -> None:
    result = turnlog("import", AIRLINE)

    assert result.status == 0
    assert "mapped: 62 messages" in result.out
    assert "62 written" in result.out


def test_a_second_import_of_a_file_adds_nothing(turnlog: Turnlog, imported: str) -> None:
    (session,) = turnlog("import", AIRLINE, "--json").json[0]["sessions"]

    assert (session["id"], session["written"], session["held"]) == (imported, 0, 62)


def test_import_takes_several_files_and_each_session_of_them(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK, AIRLINE)

    assert len(turnlog("sessions", "--json").json) == 50


def test_imported_sessions_do_not_expire(turnlog: Turnlog, imported: str) -> None:
    assert turnlog("sessions", "--json").json[0]["expires_at"] is None


def test_sessions_as_json_are_an_array_of_objects_with_ids(turnlog: Turnlog, imported: str) -> None:
    (session,) = turnlog("sessions", "--json").json

    assert (session["id"], session["messages"], session["version"]) == (imported, 62, 62)


def test_sessions_are_listed_newest_first_up_to_the_limit(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK)

    result = turnlog("sessions", "--limit", 2)

    assert [line.split()[0][-3:] for line in result.out.splitlines()[1:3]] == ["-48", "-47"]


def test_a_list_of_sessions_names_the_option_that_goes_on_behind_it(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK)

    go_on = turnlog("sessions", "--limit", 2).out.splitlines()[-1].partition(": ")[2].split()

    following = turnlog("sessions", "--limit", 2, "--json", *go_on).json
    assert [row["id"][-3:] for row in following] == ["-46", "-45"]


def test_pages_of_sessions_hold_each_session_once(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK)
    whole = [row["id"] for row in turnlog("sessions", "--json").json]

    paged: list[str] = []
    while rows := turnlog("sessions", "-n", 10, "--json", *(("--before", paged[-1]) if paged else ())).json:
        paged += [row["id"] for row in rows]

    assert paged == whole


def test_sessions_of_a_principal_are_those_and_no_others(turnlog: Turnlog, of_two_principals: None) -> None:
    rows = turnlog("sessions", "--principal", "ada", "--json").json

    assert [row["id"] for row in rows] == ["ada-2", "ada-1"]


def test_behind_the_session_of_another_principal_is_not_found(
    turnlog: Turnlog, of_two_principals: None
) -> None:
    assert turnlog("sessions", "--principal", "ada", "--before", "bob-1").status == 3


def test_a_principal_without_sessions_has_none(turnlog: Turnlog, of_two_principals: None) -> None:
    result = turnlog("sessions", "--principal", "eve")

    assert (result.status, "No sessions of eve" in result.out) == (0, True)


def test_sessions_are_listed_with_title_and_count(turnlog: Turnlog, of_two_principals: None) -> None:
    lines = turnlog("sessions", "--principal", "ada").out.splitlines()

    assert lines[0].split() == ["SESSION", "CREATED", "(UTC)", "MSGS", "EXPIRES", "TITLE"]
    assert lines[1].endswith("  Ada and the parcel")
    assert lines[1].split()[3] == "2"


def test_a_title_that_is_no_text_is_shown_as_json(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s", metadata={"title": {"de": "Straße"}})

    assert '{"de": "Straße"}' in turnlog("sessions").out


def test_log_shows_the_newest_events_in_order(turnlog: Turnlog, imported: str) -> None:
    events = turnlog("log", imported, "--limit", 3, "--json").json

    assert [event["version"] for event in events] == [60, 61, 62]


def test_log_shows_when_an_imported_message_was_said(turnlog: Turnlog, open_service: OpenService) -> None:
    said = datetime(2024, 5, 15, 23, 30, 7, tzinfo=timezone(timedelta(hours=-2)))
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_events("s", [NewEvent(Message.user("Hi"), occurred_at=said)])

    assert turnlog("log", "s").out.splitlines() == ["── 2024-05-16 UTC", "     1   01:30:07  User: Hi"]


def test_log_and_search_agree_about_time(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")
        said = datetime(2024, 5, 15, 23, 30, 7, tzinfo=UTC)
        sessions.append_events("s", [NewEvent(Message.user("Hi"), occurred_at=said)])

    day, line = turnlog("log", "s").out.splitlines()
    assert turnlog("search", "Hi").out.startswith(f"{day.split()[1]} {line.split()[1][:5]}  s")


def test_log_shows_fifty_events_unless_told_otherwise(turnlog: Turnlog, imported: str) -> None:
    assert len(turnlog("log", imported, "--json").json) == 50


def test_log_marks_what_is_no_longer_in_the_view(turnlog: Turnlog, imported: str) -> None:
    turnlog("compact", imported, "--last-turns", 1)

    events = turnlog("log", imported, "--limit", 100, "--json").json

    assert [event["version"] for event in events if event.get("in_view")] == [1, 62]


def test_log_shows_events_of_the_applications_own_types(
    turnlog: Turnlog, database: Path, open_service: OpenService
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_event("s", "ACME.AUDIT", {"by": "ada"})

    assert 'ACME.AUDIT {"by": "ada"}' in turnlog("log", "s").out


def test_view_shows_each_message_in_full(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("view", imported)

    assert '→ get_user_details({"user_id":"sofia_kim_7287"})' in result.out
    assert "assistant  version 61" in result.out


def test_view_as_openai_is_a_request_body(turnlog: Turnlog, imported: str) -> None:
    body = turnlog("view", imported, "--as", "openai", "--model", "gpt-4o").json

    assert (body["model"], len(body["messages"])) == ("gpt-4o", 62)


def test_view_as_anthropic_is_a_request_body(turnlog: Turnlog, imported: str) -> None:
    body = turnlog("view", imported, "--as", "anthropic").json

    assert body["messages"][0]["role"] == "user"
    assert "Airline Agent Policy" in json.dumps(body["system"])


def test_view_as_json_names_the_messages_by_their_ids(
    turnlog: Turnlog, imported: str, open_service: OpenService
) -> None:
    told = turnlog("view", imported, "--as", "json").json

    with open_service() as sessions:
        view = sessions.view(imported)
    assert told["ids"] == list(view.ids)
    assert [Message.model_validate(message) for message in told["messages"]] == list(view.messages)


@pytest.mark.parametrize("form", ["openai", "anthropic", "json"])
def test_ask_adds_a_next_user_message(turnlog: Turnlog, imported: str, form: str) -> None:
    newest = turnlog("view", imported, "--as", form, "--ask", "Is my bag included?").json["messages"][-1]

    assert newest["role"] == "user"
    assert "Is my bag included?" in json.dumps(newest)


def test_ask_stores_nothing(turnlog: Turnlog, imported: str) -> None:
    before = turnlog("export", imported).out

    turnlog("view", imported, "--ask", "Is my bag included?")

    assert turnlog("export", imported).out == before


def test_view_at_a_version_is_what_the_model_was_told_then(turnlog: Turnlog, imported: str) -> None:
    then = turnlog("view", imported, "--as", "json").json
    turnlog("compact", imported, "--last-turns", 1)

    assert turnlog("view", imported, "--at", 62, "--as", "json").json == then


def test_view_at_a_time_is_what_the_model_was_told_then(turnlog: Turnlog, imported: str) -> None:
    time = turnlog("log", imported, "--limit", 1, "--json").json[0]["time"]
    then = turnlog("view", imported, "--json").json
    turnlog("compact", imported, "--last-turns", 1)

    assert turnlog("view", imported, "--at", time, "--json").json == then


def test_a_time_without_an_offset_is_utc(turnlog: Turnlog, imported: str) -> None:
    time = turnlog("log", imported, "--limit", 1, "--json").json[0]["time"].removesuffix("+00:00")

    assert turnlog("view", imported, "--at", time, "--json").json["version"] == 62


def test_view_says_which_calls_are_open_at_its_version(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("pay")
        calls = [ToolCallPart(id=name, name="pay", awaiting=True) for name in ("c1", "c2", "c3")]
        sessions.append_message("pay", Message.user("Pay all three."))
        sessions.append_message("pay", Message.assistant(calls), event_id="asked")
        sessions.append_message("pay", Message.tool([ToolCallResponsePart(id="c1", response="paid")]))
        sessions.abandon("pay", "asked", "c2")

    assert re.findall(r"call (\w+) waits", turnlog("view", "pay").out) == ["c3"]
    assert re.findall(r"call (\w+) waits", turnlog("view", "pay", "--at", "2").out) == ["c1", "c2", "c3"]


def test_view_of_a_branch_is_what_its_model_is_told(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_events(
            "s", [Message.user("Compare them."), NewEvent(Message.user("Read one."), branch="reader")]
        )

    assert len(turnlog("view", "s", "--json").json["ids"]) == 1
    assert len(turnlog("view", "s", "--branch", "reader", "--json").json["ids"]) == 2


def test_a_request_that_ends_with_the_assistant_is_noted_on_stderr(
    turnlog: Turnlog, open_service: OpenService
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_events("s", [Message.user("Hi"), Message.assistant("Hello")])

    result = turnlog("view", "s", "--as", "openai")

    assert (result.status, "note:" in result.err) == (0, True)


def test_compact_reduces_the_view_and_leaves_the_log(turnlog: Turnlog, imported: str) -> None:
    before = turnlog("export", imported).out

    result = turnlog("compact", imported, "--token-budget", 3000, "--json")

    assert (result.status, result.json["compacted"], result.json["tokens_after"] <= 3000) == (0, True, True)
    assert turnlog("export", imported).out.startswith(before)


@pytest.mark.parametrize(
    ("window", "first_kept"),
    [(("--last-events", 4), 62), (("--last-turns", 2), 58), (("--token-budget", 2000), 58), ((), 44)],
)
def test_compact_keeps_what_the_window_holds(
    turnlog: Turnlog, imported: str, window: tuple[object, ...], first_kept: int
) -> None:
    turnlog("compact", imported, *window)

    events = turnlog("log", imported, "--limit", 100, "--json").json
    kept = [event["version"] for event in events if event.get("in_view")]
    assert kept == [1, *range(first_kept, 63)]


@pytest.mark.parametrize("size", [("--token-budget",), ("--strategy", "tokens", "--max-tokens")])
@pytest.mark.parametrize(("tokens", "above"), [(200, True), (3000, False)])
def test_compact_says_if_what_always_stays_is_larger_than_the_budget(
    turnlog: Turnlog, imported: str, size: tuple[str, ...], tokens: int, above: bool
) -> None:
    result = turnlog("compact", imported, *size, tokens)

    assert (result.status, "above the budget" in result.out) == (0, above)


def test_compact_with_nothing_to_do_says_so_with_status_1(turnlog: Turnlog, imported: str) -> None:
    result = turnlog("compact", imported, "--last-turns", 50)

    assert (result.status, "Nothing was compacted: nothing to cover" in result.out) == (1, True)


@pytest.mark.parametrize(
    ("trigger", "fires"),
    [
        (("--when-turns", 11), False),
        (("--when-turns", 10), True),
        (("--when-tokens", 100_000), False),
        (("--when-tokens", 5_000), True),
        (("--when-turns", 11, "--when-tokens", 5_000), True),
    ],
)
def test_compact_asks_its_triggers_first(
    turnlog: Turnlog, imported: str, trigger: tuple[object, ...], fires: bool
) -> None:
    result = turnlog("compact", imported, "--last-turns", 1, *trigger)

    assert (result.status == 0) is fires


def test_an_export_is_imported_as_the_same_log(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    turnlog("compact", imported, "--last-turns", 5)
    turnlog("compact", imported, "--last-turns", 2)
    exported = turnlog("export", imported).out
    (tmp_path / "log.jsonl").write_text(exported, "utf-8")

    turnlog("import", tmp_path / "log.jsonl", "--db", tmp_path / "other.db")

    assert turnlog("export", imported, "--db", tmp_path / "other.db").out == exported
    told = turnlog("view", imported, "--json").out
    assert turnlog("view", imported, "--json", "--db", tmp_path / "other.db").out == told


def test_an_export_keeps_the_time_at_which_something_was_said(
    turnlog: Turnlog, imported: str, tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text(turnlog("export", imported).out, "utf-8")
    shown = turnlog("log", imported).out

    turnlog("import", tmp_path / "log.jsonl", "--db", tmp_path / "other.db")

    assert turnlog("log", imported, "--db", tmp_path / "other.db").out == shown


@pytest.mark.usefixtures("of_two_principals")
def test_an_export_is_counted_by_versions_up_to_the_last(open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.hold("ada-1", "Case 7", by="ada")
        sessions.append_message("ada-1", Message.user("Thanks."))
        steps: list[int] = []

        assert len(list(counted(sessions.iter_events("ada-1"), steps.append))) == 3
        assert sum(steps) == sessions.version("ada-1")


def test_an_abandoned_call_survives_export_and_import(
    turnlog: Turnlog, open_service: OpenService, tmp_path: Path
) -> None:
    call = ToolCallPart(id="c", name="approve", arguments="{}", awaiting=True)
    with open_service() as sessions:
        sessions.create("s")
        _, asked = sessions.append_events("s", [Message.user("Pay it."), Message.assistant([call])])
        sessions.abandon("s", asked.id, "c")
        sessions.append_message("s", Message.user("Never mind."))
    exported = turnlog("export", "s").out
    (tmp_path / "log.jsonl").write_text(exported, "utf-8")

    turnlog("import", tmp_path / "log.jsonl", "--db", tmp_path / "other.db")

    assert turnlog("export", "s", "--db", tmp_path / "other.db").out == exported


def test_export_writes_a_file_as_a_whole(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    turnlog("export", imported, "--output", tmp_path / "log.jsonl")

    assert (tmp_path / "log.jsonl").read_text("utf-8") == turnlog("export", imported).out


def test_the_beginning_of_an_id_is_enough(turnlog: Turnlog, imported: str) -> None:
    assert turnlog("view", imported[:4], "--json").json["session"] == imported


def test_a_whole_id_is_never_ambiguous(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK)
    first = turnlog("sessions", "--json").json[-1]["id"]

    assert first.endswith("-0")
    second = first[:-1] + "1"  # the beginning of ten others too
    assert turnlog("view", second, "--json").json["session"] == second


def test_an_ambiguous_beginning_is_refused_with_candidates(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK)
    newest = turnlog("sessions", "--json").json[0]["id"]

    result = turnlog("view", newest[:6])

    assert (result.status, f"{newest[:-2]}0" in result.err, "and more" in result.err) == (2, True, True)


def test_last_is_the_newest_session(turnlog: Turnlog) -> None:
    turnlog("import", SMALL_TALK)

    assert turnlog("view", "@last", "--json").json["session"].endswith("-48")


def test_options_in_front_of_the_command_count_too(turnlog: Turnlog, imported: str, tmp_path: Path) -> None:
    assert turnlog("--json", "sessions").json[0]["id"] == imported
    assert turnlog("--db", tmp_path / "missing.db", "sessions").status == 3


def test_version_is_that_of_the_package(turnlog: Turnlog) -> None:
    assert turnlog("version").out == f"turnlog {turnlog('version', '--json').json['version']}\n"


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_is_an_option_too(turnlog: Turnlog, option: str) -> None:
    assert turnlog(option) == turnlog("version")


def test_the_option_version_prints_json_when_asked_to(turnlog: Turnlog) -> None:
    assert turnlog("--version", "--json") == turnlog("version", "--json")


def test_options_alone_are_no_command(turnlog: Turnlog, database: Path) -> None:
    result = turnlog("--db", database)

    assert (result.status, "Missing command" in result.err) == (2, True)


def test_without_a_command_the_help_is_shown(turnlog: Turnlog) -> None:
    result = turnlog()

    assert (result.status, "compact" in result.out) == (0, True)


def turnlog_commands() -> list[str]:
    return [command.name or "" for command in app.registered_commands]


@pytest.mark.parametrize("command", turnlog_commands())
def test_the_help_says_what_each_command_does_in_one_line(turnlog: Turnlog, command: str) -> None:
    row = re.search(rf"^│ {command} .*│$\n^(.*)$", turnlog("--help").out, re.MULTILINE)

    assert row is not None
    assert not row[1].startswith("│  "), "the description is continued"


def descriptions() -> dict[str, str]:
    """What each command says of itself."""
    groups = [("", app), *((f"{one.name} ", one.typer_instance) for one in app.registered_groups)]
    return {
        f"{group}{command.name}": cleandoc((command.callback and command.callback.__doc__) or "")
        for group, typer in groups
        if typer
        for command in typer.registered_commands
    }


@pytest.mark.parametrize("command", ["", "audit", *descriptions()])
def test_the_help_fits_into_80_columns_with_the_lines_of_the_description_as_they_are(
    turnlog: Turnlog, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = turnlog(*command.split(), "--help").out.splitlines()
    assert max(map(len, lines)) <= 80
    _, *more = descriptions().get(command, "").split("\n\n")
    assert [line for text in more for line in text.splitlines() if f" {line}".ljust(80) not in lines] == []


@pytest.mark.parametrize("command", ["", "check", "audit", "audit export"])
def test_the_help_shows_no_type_of_an_option_without_a_value(turnlog: Turnlog, command: str) -> None:
    assert "<bool>" not in turnlog(*command.split(), "--help").out


EXAMPLES = re.findall(r"Example: turnlog (.*)", "\n".join(descriptions().values()))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_of_a_help_can_be_typed(
    turnlog: Turnlog, imported: str, database: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    database.with_name("shop.db").write_bytes(database.read_bytes())
    monkeypatch.chdir(database.parent)
    expected = Status.UNREACHABLE if example.startswith("chat") else Status.DONE
    assert turnlog(*shlex.split(example.replace("0192f3c4", imported))).status == expected


def test_the_reference_names_every_command_option_and_status(turnlog: Turnlog) -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text("utf-8")

    for command in turnlog_commands():
        assert f"`turnlog {command}" in reference
        for option in re.findall(r"--[a-z-]+", turnlog(command, "--help").out):
            assert option == "--help" or option in reference, (command, option)
    for status in Status:
        assert f"| {status.value} |" in reference


def test_sessions_say_when_they_expire(turnlog: Turnlog, open_service: OpenService) -> None:
    day = datetime.now(UTC) + timedelta(days=400)
    with open_service() as sessions:
        sessions.create("stays", metadata={"title": "Oak"}, time_to_live=None)
        sessions.create("ends", time_to_live=timedelta(days=400))
        sessions.create("ended", time_to_live=timedelta(microseconds=1))

    head, *lines = turnlog("sessions").out.splitlines()

    assert head.split() == ["SESSION", "CREATED", "(UTC)", "MSGS", "EXPIRES", "TITLE"]
    assert [line.split()[4:] for line in lines] == [["expired"], [f"{day:%Y-%m-%d}"], ["Oak"]]


@pytest.mark.parametrize(
    ("session_id", "title", "shown"),
    [
        ("parcel", "A long title of it " * 5, True),
        (LONG_ID, "", True),
        (LONG_ID, "A long title of it", False),
    ],
)
def test_an_expiry_is_left_out_where_a_terminal_has_no_room(
    open_service: OpenService, session_id: str, title: str, shown: bool
) -> None:
    with open_service() as sessions:
        sessions.create(session_id, metadata={"title": title}, time_to_live=timedelta(days=9))
        table = sessions_table(sessions.list_sessions(), 80)
    assert ("EXPIRES" in [column.header for column in table.columns]) is shown
    assert console(width=200).measure(table).maximum <= 80


@pytest.mark.parametrize("change", ["hold", "gap"])
def test_log_says_that_there_are_versions_that_it_does_not_list(
    turnlog: Turnlog, open_service: OpenService, change: str
) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("Hi"))
    assert "not listed" not in turnlog("log", "s").out

    turnlog("hold", "s", "--reason", "Case 7", "--by", "ada")
    with open_service() as sessions:
        if change == "gap":
            sessions.append_message("s", Message.user("Hello"))

    assert turnlog("log", "s").out.splitlines()[-1] == (
        "not listed: turn marks, metadata, expiry, holds (lost events: `turnlog check`)"
    )
    assert ("not listed" in turnlog("log", "s", "--limit", 1).out) is (change == "hold")


def test_log_says_in_words_what_was_redacted(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("Hi"), event_id="u1")
    turnlog("redact", "s", "--event", "u1", "--reason", "asked by Ada", "--by", "bob", "--yes")

    assert (
        turnlog("log", "s")
        .out.splitlines()[-1]
        .endswith("  Redaction of version 1 (u1) by bob: asked by Ada")
    )


def test_a_view_of_a_branch_that_nobody_wrote_on_says_so(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.system("Be brief."))
        sessions.append_message("s", Message.user("Look."), branch="orch")

    assert "no message in the view is of the branch 'typo'" in turnlog("view", "s", "--branch", "typo").err
    assert turnlog("view", "s", "--branch", "orch").err == ""
    assert turnlog("view", "s", "--branch", "typo", "--json").err == ""


def test_log_says_in_words_that_a_call_was_abandoned(turnlog: Turnlog, open_service: OpenService) -> None:
    call = ToolCallPart(id="c2", name="pay", arguments="{}", awaiting=True)
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.assistant([call]), event_id="asked")
        sessions.abandon("s", "asked", "c2")

    assert turnlog("log", "s").out.splitlines()[-1].endswith("  Call c2 of event asked was abandoned")
