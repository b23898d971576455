"""What the three layers may hold and import."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from eventsourcing.domain import DomainEvent
from eventsourcing.utils import get_topic, resolve_topic

from turnlog.domain import events

ROOT = Path(__file__).parents[2]
LAYERS = ("domain", "application", "infrastructure")
SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer / "turnlog").rglob("*.py"))

FRAMEWORK_IN_DOMAIN = {
    "turnlog/domain/events.py": {"eventsourcing.domain", "eventsourcing.utils"},
    "turnlog/domain/session.py": {"eventsourcing.domain"},
}
"""The modules of the domain that touch the framework, and what of it they may import."""


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""


def _packages() -> Iterator[ModuleType]:
    for layer in LAYERS:
        package = importlib.import_module(f"turnlog.{layer}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if found.ispkg:
                yield importlib.import_module(found.name)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_adds_one_package_to_the_namespace_and_nothing_else(layer: str) -> None:
    held = {path.name for path in (ROOT / layer / "turnlog").iterdir() if path.name != "__pycache__"}
    assert held == {layer}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_says_that_it_is_typed(layer: str) -> None:
    assert (ROOT / layer / "turnlog" / layer / "py.typed").is_file()


def test_the_domain_imports_of_the_framework_what_is_listed_here() -> None:
    found = {
        str(path.relative_to(ROOT / "domain")): used
        for path in SOURCES
        if path.is_relative_to(ROOT / "domain")
        and (used := {name for name in _imports(path) if name.split(".")[0] == "eventsourcing"})
    }
    assert found == FRAMEWORK_IN_DOMAIN


def test_one_module_knows_httpx() -> None:
    found = {path.name for path in SOURCES if "httpx" in {name.split(".")[0] for name in _imports(path)}}
    assert found == {"transport.py"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_by_full_path(path: Path) -> None:
    assert "turnlog" not in set(_imports(path))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_init_lists_names_and_holds_no_logic(path: Path) -> None:
    if path.name != "__init__.py":
        return
    body = ast.parse(path.read_text(encoding="utf-8")).body
    docstring, *rest = body
    assert isinstance(docstring, ast.Expr)
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    assert all(isinstance(node, allowed) for node in rest)


def test_every_public_name_says_what_a_caller_can_rely_on() -> None:
    silent = [
        f"{package.__name__}.{name}"
        for package in _packages()
        for name in getattr(package, "__all__", ())
        if isinstance(getattr(package, name), type) or callable(getattr(package, name))
        if not (getattr(package, name).__doc__ or "").strip()
    ]
    assert silent == []


def test_every_public_method_says_what_a_caller_can_rely_on() -> None:
    silent = [
        f"{package.__name__}.{name}.{method}"
        for package in _packages()
        for name in getattr(package, "__all__", ())
        if isinstance(shown := getattr(package, name), type)
        for method, value in vars(shown).items()
        if not method.startswith("_") and (callable(value) or isinstance(value, property))
        if not isinstance(value, type) and not (value.__doc__ or "").strip()
    ]
    assert silent == []


def test_public_names_are_sorted_and_there() -> None:
    for package in _packages():
        names = list(getattr(package, "__all__", ()))
        assert names == sorted(names), package.__name__
        assert all(hasattr(package, name) for name in names), package.__name__


def _stored_classes() -> list[type[DomainEvent]]:
    own = [value for value in vars(events).values() if isinstance(value, type)]
    return [cls for cls in own if issubclass(cls, DomainEvent) and cls.__module__ == events.__name__]


@pytest.mark.parametrize("stored", _stored_classes(), ids=lambda cls: cls.__name__)
def test_a_stored_event_has_a_topic_that_finds_it(stored: type[DomainEvent]) -> None:
    if stored in (events.StreamEvent, events.ContentEvent):
        assert "TOPIC" not in vars(stored), "a base is never stored"
        return
    topic = vars(stored)["TOPIC"]
    assert topic == f"turnlog.domain.events:{stored.__name__}" == get_topic(stored)
    assert resolve_topic(topic) is stored


def test_the_list_of_stream_events_is_complete() -> None:
    bases = {events.StreamEvent, events.ContentEvent}
    listed = {cls for cls in _stored_classes() if issubclass(cls, events.StreamEvent)} - bases
    assert set(events.STREAM_EVENTS) == listed
