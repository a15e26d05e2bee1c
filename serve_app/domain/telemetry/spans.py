"""OpenTelemetry spans: what took how long in one request or job.

If Serve's tracing is on, they go to a collector; otherwise a span costs some microseconds and
nothing is kept.

Invariant: a span records the type of a failure, and no word of its message.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    format_span_id,
    format_trace_id,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

tracer = get_tracer("afa")


@contextmanager
def span(name: str, parent: Context | None = None, **facts: str | int | float) -> Iterator[Span]:
    """Make the body a span, below ``parent`` or the current span.

    Args:
        name: What is done.
        parent: What `context_of` has returned.
        facts: Attributes.
    """
    attributes = {f"afa.{name}": value for name, value in facts.items()}
    with tracer.start_as_current_span(
        name,
        parent,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as begun:
        try:
            yield begun
        except Exception as error:
            begun.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def traced_ids() -> tuple[str, str]:
    """Return the current trace id and span id in hex; both are "" if nothing is traced."""
    known = get_current_span().get_span_context()
    if not known.is_valid:
        return "", ""
    return format_trace_id(known.trace_id), format_span_id(known.span_id)


def context_of(trace_id: str, span_id: str) -> Context | None:
    """Return what makes a span a child of one in another process, or None for no ``span_id``."""
    if not span_id:
        return None
    known = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(1)
    )
    return set_span_in_context(NonRecordingSpan(known))
