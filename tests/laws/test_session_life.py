"""Laws 1 to 8 over random lives of a session, in memory and on SQLite files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.laws.machine import CountedCharacters, SessionLife
from tests.laws.profiles import effort

from turnlog.application.service import SessionService
from turnlog.application.sessions import Sessions


class LifeInMemory(SessionLife):
    """Three services on one application in memory: event ids in streams, a directory that catches up."""

    def open_services(self) -> list[SessionService]:
        app = Sessions()
        return [SessionService(app, token_estimator=CountedCharacters(), clock=self.clock) for _ in range(3)]


class LifeInSqlite(SessionLife):
    """Three applications on one SQLite file: event ids and the directory in rows."""

    def open_services(self) -> list[SessionService]:
        self._folder = ExitStack()
        file = Path(self._folder.enter_context(TemporaryDirectory())) / "sessions.db"
        env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
        return [
            SessionService(env=env, token_estimator=CountedCharacters(), clock=self.clock) for _ in range(3)
        ]

    def teardown(self) -> None:
        super().teardown()
        self._folder.close()


TestLifeInMemory = LifeInMemory.TestCase
TestLifeInMemory.settings = effort(60, 3000)

TestLifeInSqlite = LifeInSqlite.TestCase
TestLifeInSqlite.settings = effort(15, 1000)
