"""The command `unbraid`.

Each subcommand is a module with `SUMMARY`, `EXAMPLES`, `configure` for its arguments and `run`. What it needs beyond
the core, it imports when it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence

from .. import UnbraidError, __version__
from . import chat, check, completion, constrain, detect, formats, parse, render, serve, transcribe

_COMMANDS = {
    "serve": serve,
    "chat": chat,
    "transcribe": transcribe,
    "parse": parse,
    "render": render,
    "constrain": constrain,
    "detect": detect,
    "check": check,
    "formats": formats,
    "completion": completion,
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
    command.set_defaults(all_commands=all_commands)
    commands = command.add_subparsers(required=True, metavar="COMMAND")
    given = sys.argv[1:] if argv is None else argv
    for name in _COMMANDS:
        # The options of the others are not needed, nor what they import for them.
        _add(commands, name, configured=name in given)
    return command.parse_args(given)


def all_commands() -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """What each command is for, and its options."""
    commands = argparse.ArgumentParser().add_subparsers()
    return {name: (_COMMANDS[name].SUMMARY, _add(commands, name, configured=True)) for name in _COMMANDS}


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, *, configured: bool
) -> argparse.ArgumentParser:
    module = _COMMANDS[name]
    parser = commands.add_parser(
        name,
        help=module.SUMMARY,
        description=f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}.",
        epilog=f"examples:\n{module.EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if configured:
        module.configure(parser)
    return parser


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
