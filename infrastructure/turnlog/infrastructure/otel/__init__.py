"""Traces and metrics of chats for OpenTelemetry. Needs the extra `otel`."""

from turnlog.infrastructure.otel.chats import AsyncTracedSessionChat, TracedSessionChat
from turnlog.infrastructure.otel.models import AsyncTracedModel, TracedModel
from turnlog.infrastructure.otel.strategies import TracedStrategy
from turnlog.infrastructure.otel.telemetry import Telemetry

__all__ = [
    "AsyncTracedModel",
    "AsyncTracedSessionChat",
    "Telemetry",
    "TracedModel",
    "TracedSessionChat",
    "TracedStrategy",
]
