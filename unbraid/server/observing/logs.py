"""Log lines: one event a line, as text or as JSON, with its time, its level and the id of its request.

All loggers write through one handler, on the root logger: unbraid's, uvicorn's, those of libraries, Python's warnings,
and what it says of threads that fail. So no line has another shape. A message cannot break out of its line: what is not
printable in it is escaped, line ends first of all. Only a traceback has lines of its own in text, which are indented so
that none of them looks like an event; in JSON it is a field.

Each request has one access line when it is over (`log_access`). **To add a field to it, add it to `_access_fields`.**

At info no prompt and no output is logged, by anyone. A text that may quote one is logged at debug.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TextIO

from .exchange import Exchange, current

_log = logging.getLogger(__name__)
_access = logging.getLogger("unbraid.access")
_PAGE_FILES = "/playground/"
"""What the page asks for. Its access lines are at debug, unless it fails."""
Format = Literal["text", "json"]
FIELDS = "unbraid_fields"
"""The attribute of a record that has its further fields: `extra={FIELDS: {…}}`."""
_CHATTY = ("httpx", "uvicorn.error")
"""Loggers that log each request at info, as our access line does."""
_CHATTIEST = ("httpcore", "python_multipart", "uvicorn.access")
"""Loggers that log each chunk at debug, or the same as our access lines."""


_IN_WORDS = ("method", "path", "status", "outcome", "ms")
"""The fields of an access line that the text has as words, without their names."""
_LONGEST = 256
"""How many characters are told of what a client can make long."""
_WORD = re.compile(r"[^\s\"=]+")


@contextmanager
def logging_as(format: Format, level: str, stream: TextIO | None = None) -> Iterator[None]:
    """Log to `stream` (stderr) for a while, and leave the loggers as they were."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    handler.addFilter(_about_request)
    wanted = logging.getLevelNamesMapping()[level.upper()]
    quiet = (*_CHATTIEST, *_CHATTY) if wanted >= logging.INFO else _CHATTIEST
    levels = {"": wanted, **dict.fromkeys(quiet, max(wanted, logging.WARNING))}
    loggers = {name: logging.getLogger(name) for name in levels}
    before = {name: logger.level for name, logger in loggers.items()}
    for name, logger in loggers.items():
        logger.setLevel(levels[name])
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = _thread_failed, _unraisable
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)
        handler.close()
        for name, logger in loggers.items():
            logger.setLevel(before[name])


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """Log the error of a thread, which Python would write in lines of its own."""
    if failed.exc_value is not None:
        raised = failed.exc_type, failed.exc_value, failed.exc_traceback
        _log.error("a thread ended with an error", exc_info=raised)


def _unraisable(failed: sys.UnraisableHookArgs) -> None:
    """The same for an error that could not be raised where it happened."""
    if failed.exc_value is not None:
        raised = type(failed.exc_value), failed.exc_value, failed.exc_traceback
        _log.error("%s", failed.err_msg or "an error could not be raised", exc_info=raised)


def _about_request(record: logging.LogRecord) -> bool:
    """Add the ids of the request that the event belongs to. The handler runs in the task of the event."""
    exchange = current()
    if exchange is not None:
        record.request_id, record.trace_id = exchange.id, exchange.trace_id
    return True


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO unbraid.server.app [req_…] what happened`."""

    def format(self, record: logging.LogRecord) -> str:
        about = getattr(record, "request_id", None)
        words = [_time(record), record.levelname, record.name, *([f"[{about}]"] if about else []), _message(record)]
        line = printable(" ".join(words))
        trace = _traceback(self, record)
        return line + "".join(f"\n    {printable(each)}" for each in trace.splitlines())


class JsonLines(logging.Formatter):
    """An object a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for name in ("request_id", "trace_id"):
            if getattr(record, name, None):
                line[name] = getattr(record, name)
        fields: Mapping[str, Any] = getattr(record, FIELDS, {})
        line |= {name: value for name, value in fields.items() if name not in line}
        trace = _traceback(self, record)
        if trace:
            line["exception"] = trace
        return json.dumps(line, default=str)


def printable(text: str) -> str:
    """The text, with escapes for what is not printable: line ends, control characters, what turns the direction of text
    around, halves of characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def log_access(exchange: Exchange) -> None:
    """The access line of a request that is over."""
    # The page has many files: what they say is said by the line of the page.
    is_page_file = exchange.path.startswith(_PAGE_FILES) and exchange.status < 400
    level = logging.DEBUG if is_page_file else logging.INFO
    if _access.isEnabledFor(level):
        fields = _access_fields(exchange)
        others = " ".join(f"{name}={_word(value)}" for name, value in fields.items() if name not in _IN_WORDS)
        words = f"{exchange.method} {fields['path']} {exchange.status} {exchange.outcome} {fields['ms']:g}ms"
        _access.log(level, "%s", f"{words} {others}".rstrip(), extra={FIELDS: fields})


def _access_fields(exchange: Exchange) -> Mapping[str, str | int | float]:
    """The fields of an access line. One that is None is left out."""
    prompt_tokens, completion_tokens = exchange.tokens or (None, None)
    fields: dict[str, str | int | float | None] = {
        "method": exchange.method,
        "path": exchange.path[:_LONGEST],
        "status": exchange.status,
        "outcome": exchange.outcome,
        "ms": round(exchange.seconds * 1000, 1),
        "sent": exchange.sent if exchange.sent != exchange.status else None,
        "error": exchange.error,
        "client": exchange.client[:_LONGEST] or None,
        "model": exchange.model,
        "bytes": exchange.size,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _word(value: object) -> str:
    """A value as one word: in quotes, unless it is one. Names and addresses may hold anything."""
    text = str(value)
    return text if _WORD.fullmatch(text) else json.dumps(text)


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _message(record: logging.LogRecord) -> str:
    """The message. One whose arguments do not fit it is logged all the same."""
    try:
        return _whole(record.getMessage())
    except (TypeError, ValueError, KeyError):
        return _whole(f"{record.msg} {record.args!r}")


def _whole(text: str) -> str:
    """The text, with escapes for halves of characters, which not every reader of JSON takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(formatter.formatException(record.exc_info))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return _whole("\n".join(parts))
