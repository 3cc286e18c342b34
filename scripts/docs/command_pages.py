"""The page of all commands, made from their own `--help`."""

from __future__ import annotations

import os
from unittest import mock

from unbraid.cli import all_commands

from .markdown import fence

PATH = "commands.md"


def page() -> str:
    parts = ["# Commands", "What `unbraid COMMAND --help` says. [The command line](cli.md) shows how they are used."]
    # As wide as a page is, and without colours, wherever it is built.
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}):
        for name, (_, parser) in all_commands().items():
            parser.prog = f"unbraid {name}"
            parts += [f"## unbraid {name}", fence("text", parser.format_help())]
    return "\n\n".join(parts)
