"""The audit of sessions: one method per question."""

from __future__ import annotations

from turnlog.application.audit.evidence import Evidencing
from turnlog.application.audit.telling import Telling
from turnlog.application.audit.timeline import Timing
from turnlog.application.audit.verifying import Verifying


class SessionAudit(Telling, Timing, Verifying, Evidencing):
    """What a model was told, when, why, and whether the log can be relied on.

    `SessionAudit(sessions)` reads the sessions of that service, in its namespace and in its scope: an audit
    of `sessions.scoped_to("ada")` sees the sessions of ada and of nobody else. It is safe between threads.
    `renderers` are those that make recorded bodies again, by name; without it those of the installation.
    """
