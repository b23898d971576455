"""A process that makes the tables of a new store as often as it is told: python starter.py NAME."""

from __future__ import annotations

import json
import sys

from turnlog.application.service import SessionService
from turnlog.domain.messages import Message


def main(name: str) -> None:
    """For each line, the settings of a store: open it, write to it, and say that it is done."""
    print("ready", flush=True)
    for line in sys.stdin:
        with SessionService(env=json.loads(line)) as sessions:
            sessions.find_or_create("s")
            sessions.append_message("s", Message.user(name), event_id=name)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
