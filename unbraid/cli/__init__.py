"""The command `unbraid`.

Each subcommand is a module with `SUMMARY`, `configure` for its arguments and `run`. What it needs beyond the core, it
imports when it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence

from .. import UnbraidError, __version__
from . import constrain, detect, formats, parse, serve, transcribe

_COMMANDS = {
    "serve": serve,
    "transcribe": transcribe,
    "parse": parse,
    "constrain": constrain,
    "detect": detect,
    "formats": formats,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 2 for bad input, 1 when writing fails, 130 after Ctrl-C."""
    _write_utf8()
    try:
        arguments = _arguments(argv)
        code: int = arguments.run(arguments)
        # Here and not at exit, so that a closed pipe is noticed while it can still be handled.
        sys.stdout.flush()
        return code
    except UnbraidError as error:
        print(f"unbraid: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        print(f"unbraid: {error.strerror or error}", file=sys.stderr)
        _discard_output()
        return 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = argparse.ArgumentParser(
        prog="unbraid", description="Takes apart what a language model writes: answer, reasoning, tool calls, speech."
    )
    command.add_argument("--version", action="version", version=f"unbraid {__version__}")
    commands = command.add_subparsers(required=True, metavar="COMMAND")
    given = sys.argv[1:] if argv is None else argv
    for name, module in _COMMANDS.items():
        summary = module.SUMMARY
        parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if name in given:  # the options of the others are not needed, nor what they import for them
            module.configure(parser)
    return command.parse_args(given)


def _write_utf8() -> None:
    """Write UTF-8 whatever the locale. Bytes in a file name that are not UTF-8 are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _discard_output() -> None:
    """Send what is still buffered nowhere; otherwise Python complains at exit that it could not write it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
