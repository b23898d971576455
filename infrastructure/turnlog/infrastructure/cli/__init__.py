"""The command line."""

from turnlog.infrastructure.cli.main import main

__all__ = ["main"]
