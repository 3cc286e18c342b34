"""The command `unbraid`. Each subcommand is a module of the same name, with `SUMMARY`, `EXAMPLES`, `configure` for its
arguments and `run`. It imports what it needs beyond the core when it runs.

    serve.py        `unbraid serve`
    chat.py         `unbraid chat`
    transcribe/     `unbraid transcribe`
    parse.py        `unbraid parse`, one output or a dataset
    render.py       `unbraid render`
    constrain.py    `unbraid constrain`
    detect.py       `unbraid detect`
    check.py        `unbraid check`
    verify.py       `unbraid verify`
    formats.py      `unbraid formats`, `unbraid export`, `unbraid --version`
    completion.py   `unbraid completion`
    options.py      options that several commands share
    view.py         events on a terminal

To add a command, write its module and add it to `_COMMANDS`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from .. import UnbraidError
from . import chat, check, completion, constrain, detect, formats, parse, render, serve, transcribe, verify
from .options import near

_COMMANDS: dict[str, Any] = {
    "serve": serve,
    "chat": chat,
    "transcribe": transcribe,
    "parse": parse,
    "render": render,
    "constrain": constrain,
    "detect": detect,
    "check": check,
    "verify": verify,
    "formats": formats,
    "export": formats.ExportCommand,
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
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"unbraid: {where}{error.strerror or error}", file=sys.stderr)
        _discard_output()
        return 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = argparse.ArgumentParser(
        prog="unbraid", description="Takes apart what a language model writes: answer, reasoning, tool calls, speech."
    )
    command.add_argument("--version", action=_Version, help="show the version, and what is installed beside it")
    command.set_defaults(all_commands=all_commands)
    commands = command.add_subparsers(required=True, metavar="COMMAND")
    words = sys.argv[1:] if argv is None else argv
    if words and not words[0].startswith("-") and words[0] not in _COMMANDS:
        raise UnbraidError(f"there is no command {words[0]!r}{near(words[0], _COMMANDS)}; `unbraid --help` lists them")
    parsers = {
        # Only this command needs its options, and what it imports for them.
        name: _add(commands, name, configured=name in words)
        for name in _COMMANDS
    }
    arguments, rest = command.parse_known_args(words)
    if rest:
        _refuse(parsers.get(words[0], command), rest)
    return arguments


def _refuse(parser: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """Refuse words that are no options, with those that may be meant."""
    options = [name for action in parser._actions for name in action.option_strings]
    hints = [word + near(word.partition("=")[0], options) * word.startswith("-") for word in words]
    parser.error(f"unrecognized arguments: {' '.join(hints)}")


class _Version(argparse.Action):
    """`--version`. The packages are looked up when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from .formats import versions

        print("\n".join(versions()))
        parser.exit()


def all_commands() -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """The summary and the parser of each command."""
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
    """Discard what is still buffered. Otherwise Python complains at exit that it could not write it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
