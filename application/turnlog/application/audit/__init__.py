"""What a model was told, when, why, and whether the log can be relied on."""

from turnlog.application.audit.async_audit import AsyncSessionAudit
from turnlog.application.audit.core import Moment
from turnlog.application.audit.errors import (
    AuditError,
    InvalidHeadsError,
    InvalidPromptError,
    InvalidSignatureError,
    NoSummaryError,
    PromptMismatchError,
    PromptRedactedError,
    UnknownCallError,
    UnknownRendererError,
)
from turnlog.application.audit.evidence import ForeignEvidenceError, StoredSession
from turnlog.application.audit.findings import Finding, FindingKind, LostEvents, Verification
from turnlog.application.audit.heads import Head, Heads, HeadSigner, HeadVerifier
from turnlog.application.audit.prices import Price, Prices
from turnlog.application.audit.recording import PromptRecorder, RecordedCall
from turnlog.application.audit.renderers import Renderer, RendererRegistry
from turnlog.application.audit.results import (
    BoundaryRef,
    CallFigures,
    Came,
    Carried,
    CarriedPrompt,
    CarriedSummary,
    Change,
    Diff,
    EventRef,
    Explanation,
    Left,
    Lineage,
    Reason,
    Standing,
    Timeline,
    TimelineEntry,
    ViewAt,
    ViewEntry,
)
from turnlog.application.audit.service import SessionAudit
from turnlog.application.audit.telling import ToldBody
from turnlog.application.passes import SkippedPass

__all__ = [
    "AsyncSessionAudit",
    "AuditError",
    "BoundaryRef",
    "CallFigures",
    "Came",
    "Carried",
    "CarriedPrompt",
    "CarriedSummary",
    "Change",
    "Diff",
    "EventRef",
    "Explanation",
    "Finding",
    "FindingKind",
    "ForeignEvidenceError",
    "Head",
    "HeadSigner",
    "HeadVerifier",
    "Heads",
    "InvalidHeadsError",
    "InvalidPromptError",
    "InvalidSignatureError",
    "Left",
    "Lineage",
    "LostEvents",
    "Moment",
    "NoSummaryError",
    "Price",
    "Prices",
    "PromptMismatchError",
    "PromptRecorder",
    "PromptRedactedError",
    "Reason",
    "RecordedCall",
    "Renderer",
    "RendererRegistry",
    "SessionAudit",
    "SkippedPass",
    "Standing",
    "StoredSession",
    "Timeline",
    "TimelineEntry",
    "ToldBody",
    "UnknownCallError",
    "UnknownRendererError",
    "Verification",
    "ViewAt",
    "ViewEntry",
]
