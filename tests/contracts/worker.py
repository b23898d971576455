"""A process of its own that appends to a session: python worker.py SETTINGS SESSION PREFIX COUNT."""

from __future__ import annotations

import json
import sys

from turnlog.application.service import SessionService
from turnlog.domain.messages import Message


def main(settings: str, session_id: str, prefix: str, count: str) -> None:
    """Append so many messages, each in a write of its own."""
    with SessionService(env=json.loads(settings)) as sessions:
        sessions.find_or_create(session_id)
        for number in range(int(count)):
            name = f"{prefix}-{number}"
            sessions.append_message(session_id, Message.user(name), event_id=name)


if __name__ == "__main__":
    main(*sys.argv[1:])
