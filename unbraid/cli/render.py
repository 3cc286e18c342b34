"""`unbraid render`: messages as the prompt that a model's chat template makes of them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .. import UnbraidError
from .detect import find_template
from .options import add_assignments, read_assignments, read_json

SUMMARY = "write messages as the prompt that a model's chat template makes of them"
EXAMPLES = """\
  unbraid render path/to/model messages.json
  unbraid render template.jinja request.json --set enable_thinking=false
  echo '[{"role": "user", "content": "Hi"}]' | unbraid render chatml
  unbraid render path/to/model messages.json --tokenizer path/to/model --ids
"""


def configure(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "template",
        metavar="FILE|MODEL_DIR|ORG/REPO|NAME",
        help="a chat template, a tokenizer_config.json, a GGUF file, the folder of a model, its name on the hub, or "
        "chatml or step-audio-2",
    )
    command.add_argument(
        "messages",
        nargs="?",
        default="-",
        metavar="MESSAGES",
        help="a JSON list of messages, or a whole request with `messages` and `tools`; default: standard input",
    )
    request = command.add_argument_group("request")
    request.add_argument("--tools", metavar="FILE", help="the request's tools, a JSON list")
    add_assignments(request, "variables", "a variable of the template: enable_thinking=false")
    request.add_argument("--no-generation-prompt", action="store_true", help="end after the last message")
    request.add_argument("--continue", action="store_true", dest="open", help="leave the last message open")
    request.add_argument("--speak", action="store_true", help="the model is to speak")
    output = command.add_argument_group("output")
    output.add_argument("--tokenizer", metavar="PATH", help="a folder, a file or ORG/REPO with the tokenizer, for ids")
    shape = output.add_mutually_exclusive_group()
    shape.add_argument("--ids", action="store_true", help="print the token ids")
    shape.add_argument("--json", action="store_true", help="print one JSON object: text, ids, notes")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..templates import BUILT_IN, PromptBuilder, built_in, load_tokenizer
    from ..templates.sources import read_input

    name = arguments.template
    if arguments.ids and arguments.tokenizer is None:
        raise UnbraidError("--ids needs --tokenizer: a folder, a file or ORG/REPO with the model's tokenizer")
    is_built_in = name in BUILT_IN and not Path(name).exists()
    templates = built_in(name) if is_built_in else read_input(find_template(name)).templates
    tokenizer = None if arguments.tokenizer is None else load_tokenizer(arguments.tokenizer).tokenizer
    tools = None if arguments.tools is None else read_json(arguments.tools)
    request = _request(arguments.messages)
    prompt = PromptBuilder(templates, tokenizer).build(
        request["messages"],
        tools=request.get("tools") if arguments.tools is None else tools,
        documents=request.get("documents"),
        add_generation_prompt=not arguments.no_generation_prompt,
        continue_final_message=arguments.open,
        tts_output=arguments.speak,
        template_kwargs={**(request.get("chat_template_kwargs") or {}), **read_assignments(arguments.variables)},
    )
    if arguments.json:
        ids = None if prompt.ids is None else list(prompt.ids)
        print(json.dumps({"text": prompt.text, "ids": ids, "notes": list(prompt.notes)}, ensure_ascii=False, indent=2))
        return 0
    for note in prompt.notes:
        print(f"unbraid: {note}", file=sys.stderr)
    if arguments.ids:
        print(*(prompt.ids or ()))
    else:  # as it is: a line break at its end would be another prompt
        sys.stdout.write(prompt.text + "\n" * sys.stdout.isatty())
    return 0


def _request(path: str) -> dict[str, Any]:
    content = read_json(path)
    request = content if isinstance(content, dict) else {"messages": content}
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UnbraidError(f"{path} has no messages: give a JSON list of them, or a request that has one")
    return request
