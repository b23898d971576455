"""A process of its own that runs turns on a store, told line by line: python worker.py FILE-OR-SETTINGS.

`send SESSION KEY` begins a turn (KEY `-` for none). Its model says `asked` and answers with the next line;
its tool `work` says `working` and returns the next line. In the end it says `done`, or the error's name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.chats import Characters, service
from tests.support.scripted_chat import ScriptedModel, calls

from turnlog.application.chat import SessionChat
from turnlog.application.service import SessionService


def say(text: str) -> None:
    """One line to whoever started the process."""
    print(text, flush=True)


def heard() -> str:
    """The next line of whoever started the process."""
    return sys.stdin.readline().strip()


def opened(place: str) -> SessionService:
    """A service on this file, or on the store of these settings."""
    if place.startswith("{"):
        return SessionService(env=json.loads(place), token_estimator=Characters())
    return service(Path(place))


def main(place: str) -> None:
    """Run turns until there is no more line."""

    def answer(_: object) -> object:
        say("asked")
        line = heard()
        return calls("c1 work") if line == "call" else line

    def work() -> str:
        say("working")
        return heard()

    with opened(place) as sessions:
        say("ready")
        while line := heard():
            _, session_id, key = line.split()
            chat = SessionChat(sessions, ScriptedModel([answer]), tools=[work])
            try:
                chat.send(session_id, "hello", idempotency_key=None if key == "-" else key)
            except Exception as error:
                say(type(error).__name__)
            else:
                say("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
