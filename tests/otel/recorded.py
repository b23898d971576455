"""What the OpenTelemetry SDK exported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnlog.infrastructure.otel import Telemetry


class Recorded:
    """A tracer and a meter provider whose exports can be looked at."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._tracers = TracerProvider()
        self._tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider(metric_readers=[self._reader])

    def telemetry(self, **settings: Any) -> Telemetry:
        """Telemetry that goes here."""
        return Telemetry(tracer_provider=self._tracers, meter_provider=self._meters, **settings)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span, in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def span(self, name: str) -> ReadableSpan:
        """The first span of this name."""
        return next(span for span in self.spans if span.name == name)

    @property
    def tree(self) -> list[str]:
        """The spans as lines, indented below their parents."""
        spans = self.spans
        lines: list[str] = []

        def add(parent: int | None, depth: int) -> None:
            for span in spans:
                if (span.parent.span_id if span.parent else None) == parent and span.context:
                    lines.append("  " * depth + span.name)
                    add(span.context.span_id, depth + 1)

        add(None, 0)
        return lines

    @property
    def metrics(self) -> dict[str, list[tuple[Mapping[str, Any], float, int]]]:
        """Attributes, sum and count of each point, by the name of the metric."""
        found: dict[str, list[tuple[Mapping[str, Any], float, int]]] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = [p for p in metric.data.data_points if isinstance(p, HistogramDataPoint)]
                    found[metric.name] = [(dict(p.attributes or {}), p.sum, p.count) for p in points]
        return found

    @property
    def everything(self) -> str:
        """All that was exported, as text."""
        return "\n".join(span.to_json() for span in self.spans) + repr(self.metrics)

    def close(self) -> None:
        """Stop the SDK."""
        self._tracers.shutdown()
        self._meters.shutdown()
