"""An OpenTelemetry collector: receives spans over OTLP and keeps them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span, with times in seconds since the epoch and ids in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    begun_s: float
    ended_s: float
    facts: dict[str, Any]


@dataclass
class Collector:
    url: str
    spans: list[Seen] = field(default_factory=list)

    def of(self, trace_id: str) -> list[Seen]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += [
                    Seen(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano / 1e9,
                        span.end_time_unix_nano / 1e9,
                        {
                            entry.key: getattr(entry.value, entry.value.WhichOneof("value"))
                            for entry in span.attributes
                        },
                    )
                    for span in scope.spans
                ]


@contextmanager
def running_collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers.get("Content-Encoding") is None
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            server.shutdown()
