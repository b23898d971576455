"""The session service: one method per use case."""

from __future__ import annotations

from turnlog.application.appending import Appending
from turnlog.application.compacting import Compacting
from turnlog.application.ending import Ending
from turnlog.application.lifecycle import Lifecycle
from turnlog.application.reading import Reading
from turnlog.application.recall import Recall
from turnlog.application.redacting import Redacting
from turnlog.application.turns import Turns


class SessionService(Lifecycle, Ending, Redacting, Appending, Reading, Recall, Compacting, Turns):
    """Sessions on an `eventsourcing` application: its own by default, or the host's.

    `env` configures the own application the framework's way; without it sessions live in memory. Without a
    `token_estimator` the one that TOKEN_ESTIMATOR_TOPIC names is used. `namespace` separates completely, as
    for tenants. `clock` gives aware times. With `keep_passes` compactions that wrote nothing are kept beside
    the session, for audits. The service is a context manager, safe between threads, and never closes a
    host's application.

    Raises, besides what each method says: `SessionNotFoundError` for a session that does not exist,
    `InvalidIdError` for a malformed id, `StorageLockedError` and `StorageError` for what the database says.
    """
