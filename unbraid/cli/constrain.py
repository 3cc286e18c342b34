"""`unbraid constrain`: a grammar for a request, in the syntax that an engine reads."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, cast, get_args

from .. import constraint
from ..constraints.printers import GrammarSyntax
from .options import add_format, read_format, read_json, read_tools

SUMMARY = "print the grammar that holds a model to its format and tools, for an engine to enforce"
EXAMPLES = """\
  unbraid constrain --format hermes --tools tools.json --tool-choice required
  unbraid constrain --format qwen3 --tools tools.json --syntax gbnf
"""


def configure(command: argparse.ArgumentParser) -> None:
    add_format(command)
    request = command.add_argument_group("request", "what the model is asked")
    request.add_argument("--tools", metavar="FILE", help="the request's tools, a JSON list")
    request.add_argument(
        "--tool-choice", default="auto", metavar="CHOICE", help="none, auto, required, or a function's name (auto)"
    )
    request.add_argument("--one-call", action="store_true", help="no more than one tool call")
    request.add_argument("--reasoning", action=argparse.BooleanOptionalAction, help="must the model reason first?")
    request.add_argument("--response-schema", metavar="FILE", help="the JSON schema of the answer")
    request.add_argument("--prompt", metavar="TEXT", help="the end of the prompt, where it opened a section: '<think>'")
    output = command.add_argument_group("output")
    output.add_argument("--syntax", choices=get_args(GrammarSyntax), default="lark", help="default: lark (llguidance)")
    output.add_argument("--json", action="store_true", help="print one JSON object: syntax, grammar, unenforced")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    choice: str | dict[str, Any] = arguments.tool_choice
    if choice not in ("none", "auto", "required"):
        choice = {"type": "function", "function": {"name": choice}}
    answer = None
    if arguments.response_schema is not None:
        answer = {"type": "json_schema", "json_schema": {"schema": read_json(arguments.response_schema)}}
    limits = constraint(
        read_format(arguments),
        tools=None if arguments.tools is None else read_tools(arguments.tools),
        tool_choice=choice,
        parallel_tool_calls=not arguments.one_call,
        reasoning=arguments.reasoning,
        response_format=answer,
        prompt=arguments.prompt,
    )
    syntax = cast(GrammarSyntax, arguments.syntax)
    printed = getattr(limits, f"to_{syntax}")()
    unenforced = limits.unenforced(syntax)
    if arguments.json:
        loosened = [{"where": loose.where, "what": loose.what} for loose in unenforced]
        reply = {"syntax": syntax, "grammar": printed, "unenforced": loosened}
        print(json.dumps(reply, ensure_ascii=False, indent=2))
        return 0
    print(printed.rstrip("\n") if isinstance(printed, str) else json.dumps(printed, ensure_ascii=False, indent=2))
    for loose in unenforced:
        print(f"unbraid: {loose.where}: {loose.what}", file=sys.stderr)
    return 0
