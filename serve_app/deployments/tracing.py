"""Gives spans to a collector of OpenTelemetry, where the environment names one.

Serve traces a request through its proxy and its replicas, and every call between these; ours are
the spans of a job, of its steps and of each batch.
"""

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORTER = "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH"
SAMPLING_RATIO = "RAY_SERVE_TRACING_SAMPLING_RATIO"


def trace_if_asked() -> None:
    """Have the Serve that this process starts trace every request, if a collector is named."""
    if os.environ.get(ENDPOINT):
        os.environ.setdefault("OTEL_SERVICE_NAME", "afa")
        os.environ.setdefault(EXPORTER, f"{__name__}:{to_collector.__name__}")
        os.environ.setdefault(SAMPLING_RATIO, "1")


def to_collector() -> list[SpanProcessor]:
    """Make what exports the spans of one process; Serve calls this in each.

    Where, with which headers and how much at once is said by the variables of OpenTelemetry,
    ``OTEL_EXPORTER_OTLP_*`` and ``OTEL_BSP_*``.
    """
    return [BatchSpanProcessor(OTLPSpanExporter())]
