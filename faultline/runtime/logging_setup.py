"""One logger setup: JSON lines in production, one readable line on a terminal. Always on stderr: stdout is for results."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog

from faultline.runtime.log_folding import KafkaLogFilter
from streams.telemetry import tracing
from streams.telemetry.redaction import clean
from streams.telemetry.trace_context import of_incident

OURS = ("faultline", "streams", "runbooks", "connectors")
"""The packages whose lines the asked level is for. Libraries only warn: at `debug` some print whole responses, tokens included,
and each step of an expression."""

FAUST = ("streams.correlate.faust_app", "streams.correlate.faust_consumer")
"""Faust's services log under our modules that derive from them; their `info` lines are of no use."""

FIRST = ("event", "level", "timestamp", "process", "incident", "run", "trace_id")
"""The first keys of a JSON line, in this order; the rest follows by name."""

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    # Never the values of local variables, which both formatters would show by default: there are secrets among them.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure(
    process: str, *, level: str = "info", form: Literal["auto", "json", "line"] = "auto"
) -> KafkaLogFilter:
    """Set up structlog and the standard library's logging (Faust, aiokafka) alike; every line names `process`.

    A long-running process calls `look` of the result about once a second.
    """
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    final: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        final += [_TRACEBACKS, _in_order]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[*final, renderer, _without_secrets]
        )
    )
    folding = KafkaLogFilter()
    handler.addFilter(folding)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    asked = logging.getLogger(__name__).getEffectiveLevel()
    for quiet in (root, *map(logging.getLogger, FAUST)):
        quiet.setLevel(max(logging.WARNING, asked))
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    return folding


def _add_trace(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Name the trace of the incident that a line is about, while there are traces."""
    incident = line.get("incident")
    if tracing.is_on() and isinstance(incident, str) and incident.startswith("inc-"):
        line["trace_id"] = of_incident(incident).trace_id
    return line


def _without_secrets(_logger: object, _method: str, rendered: Any) -> str:
    """The last step, on the finished line: whatever was logged, quoted or raised is in it."""
    return clean(str(rendered))


def _in_order(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    first = {key: line.pop(key) for key in FIRST if key in line}
    return first | dict(sorted(line.items()))
