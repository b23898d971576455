"""Tools for a chat, named on the command line as `module:function`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from turnlog.application.chat import Tool
from turnlog.infrastructure.cli.failures import CommandUsageError


def tools_of(names: Sequence[str]) -> tuple[Tool, ...]:
    """The functions of these names as tools; modules are looked for in the current folder too.

    Raises `CommandUsageError` for a name that means no function.
    """
    if names and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return tuple(map(_tool, names))


def _tool(name: str) -> Tool:
    module_name, colon, path = name.partition(":")
    if not module_name or not colon or not path:
        raise CommandUsageError(f"--tool takes MODULE:FUNCTION, as in weather:forecast, not {name!r}.")
    try:
        found: object = import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise CommandUsageError(f"The module of --tool {name} cannot be imported: {error}.") from error
    except AttributeError as error:
        raise CommandUsageError(f"--tool {name} means nothing: {error}.") from error
    if not callable(found):
        raise CommandUsageError(f"--tool {name} is no function.")
    return Tool.of(found)
