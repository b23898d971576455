"""The pages about the main classes have every public method, with the parameters that it really takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import cast, get_args

import pytest

from turnlog.application import (
    AsyncSessionAudit,
    AsyncSessionChat,
    AsyncSessionService,
    SessionAudit,
    SessionChat,
    SessionService,
)
from turnlog.application.chat import Turn, TurnEvent
from turnlog.application.turns import CallReference

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGES: dict[str, type[object]] = {"service": SessionService, "chat": SessionChat, "audit": SessionAudit}
TWINS: list[tuple[type[object], type[object]]] = [
    (SessionService, AsyncSessionService),
    (SessionChat, AsyncSessionChat),
    (SessionAudit, AsyncSessionAudit),
]


def page(name: str) -> str:
    """The text of a page of the reference."""
    return (REFERENCE / f"{name}.md").read_text("utf-8")


def public(cls: type[object]) -> Iterator[tuple[str, object]]:
    """The public members of a class by name."""
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_"):
            yield name, member


def signature(name: str, method: object) -> str:
    """The method as the pages write it: what may be left out has `=…`."""
    shown: list[str] = []
    _, *parameters = inspect.signature(cast("Callable[..., object]", method)).parameters.values()
    for place, parameter in enumerate(parameters):
        is_named = parameter.kind is parameter.KEYWORD_ONLY
        if is_named and (place == 0 or parameters[place - 1].kind is not parameter.KEYWORD_ONLY):
            shown.append("*")
        shown.append(parameter.name if parameter.default is parameter.empty else f"{parameter.name}=…")
    return f"{name}({', '.join(shown)})"


MEMBERS = [(of, name) for of, cls in PAGES.items() for name, _ in public(cls)]


@pytest.mark.parametrize(("of", "name"), MEMBERS)
def test_a_member_stands_on_the_page_as_it_is(of: str, name: str) -> None:
    member = getattr(PAGES[of], name)
    head = name if isinstance(member, property) else signature(name, member)
    assert f"\n- `{head}`:" in page(of)


@pytest.mark.parametrize("of", PAGES)
def test_a_page_names_nothing_that_the_class_does_not_have(of: str) -> None:
    heads = [line[3:].partition("`")[0] for line in page(of).splitlines() if line.startswith("- `")]
    named = {head.partition("(")[0] for head in heads}
    assert named == {name for name, _ in public(PAGES[of])}


@pytest.mark.parametrize("of", PAGES)
def test_a_page_names_every_parameter_of_the_constructor(of: str) -> None:
    _, *parameters = inspect.signature(PAGES[of].__init__).parameters
    text = page(of)
    assert [one for one in parameters if f"`{one}`" not in text and f"{one}=…" not in text] in (
        [],
        ["service"],
    )


@pytest.mark.parametrize(("sync", "awaited"), TWINS)
def test_what_is_for_asyncio_takes_the_same(sync: type[object], awaited: type[object]) -> None:
    methods = [(name, member) for name, member in public(awaited) if callable(member)]
    assert methods
    for name, member in methods:
        assert signature(name, member) == signature(name, getattr(sync, name))


def test_the_page_of_the_chat_names_all_of_a_turn() -> None:
    properties = [name for name, member in public(Turn) if isinstance(member, property)]
    of_calls = [field.name for field in fields(CallReference)]
    text = page("chat")
    wanted = [*(field.name for field in fields(Turn)), *properties, *of_calls]
    assert [name for name in wanted if f"`{name}`" not in text] == []


def test_the_page_of_the_chat_names_all_events_of_a_stream() -> None:
    text = page("chat")
    for event in get_args(TurnEvent):
        shown = f"{event.__name__}({', '.join(field.name for field in fields(event))})"
        assert f"`{shown}`" in text


@pytest.mark.parametrize("of", PAGES)
def test_every_error_of_a_page_is_where_the_page_says(of: str) -> None:
    text = page(of)
    found = re.search(r"Errors are imported from `([\w.]+)`, but\s(.*?)\sfrom\s`([\w.]+)`\.", text, re.DOTALL)
    assert found
    most, others, other = found.groups()
    elsewhere = set(re.findall(r"\w+Error\b", others))
    assert elsewhere
    for name in set(re.findall(r"\b[A-Z]\w+Error\b", text)):
        assert hasattr(import_module(other if name in elsewhere else most), name), name
