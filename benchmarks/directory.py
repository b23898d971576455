"""What listing sessions costs as they become many, of one principal and of one among others.

Run it with `python -m benchmarks.directory`; `--quick` takes a tenth of the sessions.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.core import Row, folder_in, in_turns, microseconds, service
from turnlog.application import SessionService
from turnlog.domain import SessionAttributes

PAGE = 50
ADA, BOB = "ada", "bob"
AGENTS = ("scout", "writer", "critic", "clerk")


def fill(sessions: SessionService, count: int) -> None:
    """Sessions of one principal, one in a hundred of another's, of several agents."""
    for number in range(count):
        owner = BOB if number % 100 == 0 else ADA
        sessions.create(metadata=_metadata(owner, number))
    for number in range(count // 100):  # so that the first has as many as is said
        sessions.create(metadata=_metadata(ADA, number))


def _metadata(owner: str, number: int) -> dict[str, str]:
    return {
        SessionAttributes.PRINCIPAL_NAME: owner,
        SessionAttributes.AGENT_NAME: AGENTS[number % len(AGENTS)],
        SessionAttributes.TITLE: f"Conversation {number}",
    }


def listings(folder: Path, count: int, rounds: int) -> Iterator[Row]:
    """The newest sessions, a later page, several criteria, and a principal with few sessions."""
    with service(folder) as sessions:
        fill(sessions, count)
        ada, bob = sessions.scoped_to(ADA), sessions.scoped_to(BOB)
        middle = 0
        for _ in range(10):
            page = ada.list_sessions(limit=count // 20, before=middle or None)
            middle = page[-1].position
        questions = {
            f"newest {PAGE} of {count:,} of one principal (ms)": lambda: ada.list_sessions(limit=PAGE),
            f"{PAGE} from the middle of these (ms)": lambda: ada.list_sessions(limit=PAGE, before=middle),
            f"newest {PAGE} of one agent of these (ms)": lambda: ada.find_by_metadata(
                {SessionAttributes.AGENT_NAME: AGENTS[0]}, limit=PAGE
            ),
            f"newest {PAGE} of {count // 100:,} among them (ms)": lambda: bob.list_sessions(limit=PAGE),
            "one by its title (ms)": lambda: ada.find_by_metadata(
                {SessionAttributes.TITLE: "Conversation 7"}
            ),
            f"newest {PAGE} of all (ms)": lambda: sessions.list_sessions(limit=PAGE),
        }
        for what, seconds in zip(questions, in_turns(list(questions.values()), rounds), strict=True):
            yield Row(what, microseconds(seconds), seconds * 1000, 20)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10,000 sessions, not 100,000")
    count = 10_000 if parser.parse_args().quick else 100_000
    memory = Path("/dev/shm")  # noqa: S108 - tmpfs: making the sessions takes long enough
    print(f"| {'what':<44} | {'median':>17} | {'ratio':>5} | {'limit':>5} | {'':<4} |")
    print(f"|{'-' * 46}|{'-' * 19}|{'-' * 7}|{'-' * 7}|{'-' * 6}|")
    with folder_in(memory if os.access(memory, os.W_OK) else None) as folder:
        for row in listings(folder, count, 20):
            print(row, flush=True)


if __name__ == "__main__":
    main()
