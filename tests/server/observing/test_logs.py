"""Log lines: their shape, what cannot get into them, and loggers left as they were."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.server.observing.exchange import Exchange
from unbraid.server.observing.logs import FIELDS, JsonLines, TextLines, log_access, printable

from .conftest import logged

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) \S+ .*")
_log = logging.getLogger("unbraid.test")


def record(message: Any, *args: Any, **more: Any) -> logging.LogRecord:
    return logging.LogRecord("unbraid.test", logging.INFO, "", 0, message, args, more.pop("exc_info", None), **more)


def failure(text: str) -> Any:
    try:
        raise RuntimeError(text)
    except RuntimeError:
        return sys.exc_info()


@given(st.text())
def test_a_message_stays_in_its_line(text: str) -> None:
    line = TextLines().format(record("%s", text))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert LINE.fullmatch(line)
    found = JsonLines().format(record("%s", text))
    assert len(found.splitlines()) == 1
    assert found.isascii()
    assert json.loads(found)["message"] == text.encode("utf-8", "backslashreplace").decode()


@given(st.text())
def test_no_line_of_a_traceback_looks_like_an_event(text: str) -> None:
    forged = f"2026-01-01T00:00:00.000Z INFO unbraid.access {text}"
    trouble = record("it broke", exc_info=failure(f"{text}\n{forged}\r{forged}\u2028{forged}"))
    first, *rest = TextLines().format(trouble).split("\n")
    assert LINE.fullmatch(first)
    for line in rest:
        assert line.startswith("    ")
        assert line.isprintable()
        assert not LINE.fullmatch(line)
    (line,) = JsonLines().format(trouble).splitlines()
    assert "RuntimeError" in json.loads(line)["exception"]


@given(st.text())
def test_what_is_printable_is_not_changed(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert printable(text) == text


def test_arguments_that_do_not_fit_are_logged_all_the_same() -> None:
    for lines in (TextLines(), JsonLines()):
        assert "%d apples" in lines.format(record("%d apples", "some"))


def test_further_fields_cannot_replace_the_first_ones() -> None:
    with_fields = record("hello")
    setattr(with_fields, FIELDS, {"message": "forged", "level": "forged", "more": 1})
    found = json.loads(JsonLines().format(with_fields))
    assert (found["message"], found["level"], found["more"]) == ("hello", "info", 1)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_levels(level: str) -> None:
    with logged("text", level) as log:
        for name in ("debug", "info", "warning", "error"):
            getattr(_log, name)("it says %s", name)
        logging.getLogger("httpx").info("a request")
        logging.getLogger("uvicorn.error").info("a connection")
        logging.getLogger("httpcore.connection").debug("a chunk")
    names = ("debug", "info", "warning", "error")
    own = [line.split()[1].lower() for line in log.lines() if "it says" in line]
    assert own == list(names[names.index(level) :])
    assert ("a request" in log.getvalue()) == (level == "debug")
    assert ("a connection" in log.getvalue()) == (level == "debug")
    assert "a chunk" not in log.getvalue()


def test_warnings_of_python_are_lines_too() -> None:
    with warnings.catch_warnings(), logged() as log:
        warnings.simplefilter("always")
        warnings.warn("something is old", DeprecationWarning, stacklevel=1)
    (line,) = log.objects()
    assert (line["level"], line["logger"]) == ("warning", "py.warnings")
    assert "something is old" in line["message"]


def test_threads_that_fail_are_lines_too() -> None:
    def broken() -> None:
        raise RuntimeError("a thread is broken")

    class Unfinished:
        def __del__(self) -> None:
            raise RuntimeError("this cannot be raised")

    before = threading.excepthook, sys.unraisablehook
    with logged() as log:
        thread = threading.Thread(target=broken)
        thread.start()
        thread.join()
        unfinished = Unfinished()
        del unfinished
    assert (threading.excepthook, sys.unraisablehook) == before
    first, second = log.objects()
    assert "a thread is broken" in first["exception"]
    assert "this cannot be raised" in second["exception"]


def test_the_loggers_are_left_as_they_were() -> None:
    names = ("", "httpx", "httpcore", "uvicorn.error")
    before = [(logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names]
    with logged("json", "error"):
        assert logging.getLogger().level == logging.ERROR
    assert [(logging.getLogger(name).level, list(logging.getLogger(name).handlers)) for name in names] == before


def test_nothing_is_left_open() -> None:
    """With warnings as errors, a handler that is not closed would say so at the end."""
    code = (
        "import logging\n"
        "from unbraid.server.observing.logs import logging_as\n"
        "with logging_as('json', 'info'):\n"
        "    logging.getLogger('a').info('hello')\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["message"] == "hello"


def test_files_of_the_page_are_told_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Opening the page is one line, and not one for each of its files."""
    with caplog.at_level("DEBUG", logger="unbraid.access"):
        for path, status in (("/", 200), ("/playground/app.js", 200), ("/playground/none.js", 404)):
            log_access(Exchange(id="a", method="GET", path=path, sent=status))
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "DEBUG", "INFO"]
