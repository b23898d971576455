"""Texts of strangers reach a terminal as something to read, never as commands to it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.infrastructure.cli.conftest import OpenService, Turnlog

from turnlog.domain.messages import BlobPart, Message, ReasoningPart, ToolCallPart
from turnlog.infrastructure.cli.output import one_line, one_line_of, visible, write_json

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "\x9b31mred",
    "\u202egnp.exe",
    "\U000e0041hidden",
    "bell\x07 nul\x00 del\x7f",
    "\udcff lone",
    "rewritten\rline",
    "[bold red]markup[/] [link=http://x]y[/link] [/]",
    ":boom: 12 http://example.org 'quoted'",
)
STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request: pytest.FixtureRequest, open_service: OpenService) -> str:
    text = str(request.param)
    with open_service() as sessions:
        sessions.create("s", metadata={"title": text})
        sessions.append_events(
            "s",
            [
                Message.system(text),
                Message.user(text),
                Message.assistant(
                    [
                        ReasoningPart(content=text),
                        ToolCallPart(id=text, name=text, arguments=text),
                        BlobPart(modality="image", mime_type=text, content="eA=="),
                    ]
                ),
                Message.tool(text, id=text, name=text),
            ],
        )
        sessions.append_event("s", "ACME.NOTE", {"note": text})
    return text


@pytest.mark.parametrize(
    "command",
    [
        ("sessions",),
        ("log", "s"),
        ("log", "s", "--json"),
        ("view", "s"),
        ("view", "s", "--as", "json"),
        ("view", "s", "--as", "openai"),
        ("view", "s", "--as", "anthropic"),
        ("export", "s"),
        ("search", "owned", "red", "hidden", "del", "lone", "line", "markup", "boom", "exe"),
        ("search", "owned", "red", "hidden", "del", "lone", "line", "markup", "boom", "exe", "--json"),
    ],
    ids=" ".join,
)
def test_no_command_prints_what_steers_a_terminal(
    turnlog: Turnlog, hostile: str, command: tuple[str, ...]
) -> None:
    result = turnlog(*command)

    assert result.status == 0
    assert not STEERING.search(result.out + result.err)


def test_json_holds_the_text_as_it_is(turnlog: Turnlog, hostile: str) -> None:
    messages = turnlog("view", "s", "--json").json["messages"]

    assert messages[1]["parts"][0]["content"] == hostile


def test_an_error_shows_a_hostile_id_without_what_steers(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")

    result = turnlog("view", "\x1b[2J\u202enobody")

    assert result.status == 3
    assert not STEERING.search(result.err)


def test_markup_is_shown_as_it_is_written(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("s")
        sessions.append_message("s", Message.user("[bold]not bold[/bold] :smile:"))

    for command in (("log", "s"), ("view", "s"), ("search", "bold")):
        assert "[bold]not bold[/bold] :smile:" in turnlog(*command).out


def test_an_id_with_markup_is_shown_as_it_is_written(turnlog: Turnlog, open_service: OpenService) -> None:
    with open_service() as sessions:
        sessions.create("[bold]s[/bold]")

    for command in (
        ("sessions",),
        ("compact", "@last"),
        ("extend", "@last", "--never"),
        ("hold", "@last", "--reason", "Case 7", "--by", "ada"),
        ("release", "@last", "--by", "ada"),
        ("delete", "@last", "--yes"),
    ):
        assert "[bold]s[/bold]" in turnlog(*command).out


@given(st.text())
def test_visible_text_never_steers(text: str) -> None:
    assert not STEERING.search(visible(text))


@given(st.text())
def test_one_line_has_no_line_break(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@given(st.text(), st.integers(1, 100))
def test_a_cut_line_fits_its_cells(text: str, width: int) -> None:
    assert cell_len(one_line_of(text, width)) <= width


def test_printed_json_is_the_value_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"texts": [*HOSTILE, "".join(map(chr, range(0x300))), "日本語 😀"]}

    write_json(value)

    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert "日本語 😀" in printed
