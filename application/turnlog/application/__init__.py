"""The application: the session service and what it runs on."""

from turnlog.application.appending import Appendable
from turnlog.application.async_service import AnySessionService, AsyncSessionService
from turnlog.application.audit import AsyncSessionAudit, PromptRecorder, SessionAudit
from turnlog.application.background import (
    AsyncBackgroundCompaction,
    BackgroundClosedError,
    BackgroundCompaction,
)
from turnlog.application.chat import (
    AsyncChatModel,
    AsyncChatModelSummarizer,
    AsyncSessionChat,
    ChatModel,
    ChatModelSummarizer,
    SessionChat,
)
from turnlog.application.compacting import OnRace, OpenPass
from turnlog.application.context import event_context
from turnlog.application.core import Capabilities
from turnlog.application.ending import LegalHold
from turnlog.application.erasing import (
    BackupError,
    Deletion,
    ErasureDue,
    ErasureUnsupportedError,
    Redaction,
    SessionEraser,
    Sweep,
    UnreadableErasureError,
)
from turnlog.application.lifecycle import SessionDetails
from turnlog.application.ports import SessionRow
from turnlog.application.reading import SessionUsage
from turnlog.application.recall_tools import ConversationSearch, CrossSessionSearch, RecallResult
from turnlog.application.service import SessionService
from turnlog.application.sessions import AnchorSnapshots, Sessions

__all__ = [
    "AnchorSnapshots",
    "AnySessionService",
    "Appendable",
    "AsyncBackgroundCompaction",
    "AsyncChatModel",
    "AsyncChatModelSummarizer",
    "AsyncSessionAudit",
    "AsyncSessionChat",
    "AsyncSessionService",
    "BackgroundClosedError",
    "BackgroundCompaction",
    "BackupError",
    "Capabilities",
    "ChatModel",
    "ChatModelSummarizer",
    "ConversationSearch",
    "CrossSessionSearch",
    "Deletion",
    "ErasureDue",
    "ErasureUnsupportedError",
    "LegalHold",
    "OnRace",
    "OpenPass",
    "PromptRecorder",
    "RecallResult",
    "Redaction",
    "SessionAudit",
    "SessionChat",
    "SessionDetails",
    "SessionEraser",
    "SessionRow",
    "SessionService",
    "SessionUsage",
    "Sessions",
    "Sweep",
    "UnreadableErasureError",
    "event_context",
]
