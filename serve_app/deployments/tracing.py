"""Sends spans to an OpenTelemetry collector, if the environment names one.

Serve traces a request through its proxy and its replicas, and every call between them; the spans of
a job, of its steps and of each batch are ours.
"""

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORTER = "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH"
SAMPLING_RATIO = "RAY_SERVE_TRACING_SAMPLING_RATIO"


def trace_if_asked() -> None:
    """Let the Serve that this process starts trace every request, if a collector is named."""
    if os.environ.get(ENDPOINT):
        os.environ.setdefault("OTEL_SERVICE_NAME", "afa")
        os.environ.setdefault(EXPORTER, f"{__name__}:{to_collector.__name__}")
        os.environ.setdefault(SAMPLING_RATIO, "1")


def to_collector() -> list[SpanProcessor]:
    """Make the exporter for the spans of one process; Serve calls this in each.

    OpenTelemetry's variables ``OTEL_EXPORTER_OTLP_*`` and ``OTEL_BSP_*`` set the address, the
    headers and the batch size.
    """
    return [BatchSpanProcessor(OTLPSpanExporter())]
