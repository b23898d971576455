"""Names of metadata that turnlog itself understands, after the OpenTelemetry conventions."""

from __future__ import annotations

from typing import Final


class SessionAttributes:
    """Keys of a session's metadata."""

    PRINCIPAL_NAME: Final = "user.name"
    """Whom the session belongs to. `update_metadata` keeps it unless it is named: None takes it away."""

    AGENT_NAME: Final = "gen_ai.agent.name"
    AGENT_VERSION: Final = "gen_ai.agent.version"
    MODEL: Final = "gen_ai.request.model"
    TITLE: Final = "title"
