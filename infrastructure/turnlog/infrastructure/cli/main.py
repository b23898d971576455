"""Where the command `turnlog` starts. What a command needs is imported by that command alone."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line that the process was started with, and exit with its status."""
    try:
        from turnlog.infrastructure.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print("turnlog: the command line needs the extra `cli`: pip install 'turnlog[cli]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(sys.argv[1:]))
