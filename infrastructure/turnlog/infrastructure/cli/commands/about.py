"""The commands about turnlog itself."""

from __future__ import annotations

import json

import typer

from turnlog.infrastructure.cli.options import Json, settings_of
from turnlog.infrastructure.cli.settings import Status


def demo() -> int:
    """Play a real conversation: see it kept, compacted and replayed."""
    from turnlog.infrastructure.demo.play import play

    return play()


def version(context: typer.Context, as_json: Json = False) -> int:
    """Print the version of turnlog."""
    from importlib.metadata import version as version_of

    number = version_of("turnlog")
    as_json = settings_of(context, None, as_json).json
    print(json.dumps({"version": number}) if as_json else f"turnlog {number}")
    return Status.DONE
