"""The conformance cases: those of this repository, or those of the folder `TURNLOG_CONFORMANCE`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from tests.support.events import EVENT_FIELDS, Data, only

_OWN = Path(__file__).parents[1] / "conformance" / "cases"
FOLDER = Path(os.environ.get("TURNLOG_CONFORMANCE") or _OWN)

T = TypeVar("T")

_FILE_FIELDS = ("source", "cases", "base_events")
_CASE_FIELDS = ("name", "group", "why", "from_design_page", "depends_on", "expect")


def contents(name: str) -> Mapping[str, Any] | None:
    """The file `<name>_cases.json` of the folder, None when it is not there."""
    if not FOLDER.is_dir():
        raise pytest.UsageError(f"TURNLOG_CONFORMANCE names {FOLDER}, which is no folder.")
    path = FOLDER / f"{name}_cases.json"
    return only(json.loads(path.read_text("utf-8")), _FILE_FIELDS) if path.exists() else None


def cases(name: str, keep: Callable[[Data], bool] = lambda _: True) -> Iterable[Any]:
    """One parameter for each case of the file that is to be kept; the id of the test is the case's name."""
    found = contents(name)
    if found is None:
        reason = f"{name}_cases.json is not in {FOLDER}"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id=f"{name}-not-present")]
    listed = cast("list[Data]", found["cases"])
    names = [case["name"] for case in listed]
    assert len(set(names)) == len(names), f"a name is used twice in {name}_cases.json"
    return [pytest.param(case, id=case["name"]) for case in listed if keep(case)]


def checked_case(case: Data, *fields: str) -> Data:
    """The case itself; fails when it or an event of its log has a field that these tests do not read."""
    for event in case.get("log", ()):
        only(event, EVENT_FIELDS)
    return only(case, (*_CASE_FIELDS, *fields))


def outcome(act: Callable[[], T], errors: Mapping[type[Exception], str]) -> tuple[T | None, str | None]:
    """What the call returns, or the name of the error that it ends in; other errors pass."""
    try:
        return act(), None
    except tuple(errors) as error:
        return None, next(name for kind, name in errors.items() if isinstance(error, kind))


def check(expect: Data, found: Mapping[str, Callable[[], object]], error: str | None = None) -> None:
    """Compare each expectation with what was found, in any order.

    Fails for an expectation that is compared with nothing, and for an error that is not expected.
    """
    only(expect, (*found, "error"))
    assert expect, "the case expects nothing"
    assert error == expect.get("error")
    for name in expect.keys() - {"error"}:
        actual = found[name]()
        assert actual == expect[name], f"{name} is {actual!r}, expected is {expect[name]!r}"
