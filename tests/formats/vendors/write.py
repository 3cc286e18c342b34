"""Writes docs/templates.md: the vendors' templates, and what of an assistant's turn comes back through them.

python -m tests.formats.vendors.write           write it
python -m tests.formats.vendors.write --check   only say whether it is up to date
"""

from __future__ import annotations

import sys
from typing import Any

import unbraid

from ...support.generated import main
from ...support.places import ROOT
from ...templates.prompt_cases import vendor_builder
from ...templates.prompt_models import ALL_TEMPLATES
from .rendering import ArgumentsAs, Template, written
from .templates import TEMPLATES, WITHOUT_FORMAT
from .turns import TOOLS, TURNS

DOCUMENT = ROOT / "docs" / "templates.md"

_HEAD = """\
# Vendors' templates

A chat template writes an assistant's turn as the model itself would have written it. So it shows, better than any
description, what the model writes. Each template below was given turns, and what it wrote was parsed. By law 10
([laws.md](laws.md)) the turn comes back.

- **yes**: the turn comes back, byte for byte. Arguments were given as objects or as text, whichever the template takes.
- **less**: everything that the template wrote comes back. The last column says what it does not write.
- **no**: the turn does not come back; the last column says why.
- **–**: the template does not accept such a turn, or writes nothing for it.

Templates are rendered as Hugging Face renders them (`unbraid.templates`). `tests/formats/vendors/test_templates.py`
checks this table, with whole texts and one character at a time. It also checks that the constraints accept what the
templates write, and names those that do not.

Written by `python -m tests.formats.vendors.write`; do not edit.
"""

_CONVERSATIONS = """
## Conversations

A client sends back what the model said, with results, and the template decides what of it the model sees. Every
instruction, call, argument, result and answer is in the prompt, once and in order (`tests/server/test_round.py`: all
templates, three dialects, streamed and whole). Nothing is read off a template's source: the shape of a conversation is
rendered with a word in each place (`unbraid/templates/prompt/bridges.py`), and where a word is missing the same is said
in another way. What that is, for each template:

- **reasoning**: which reasoning it says: of all turns, of messages with calls, of the turn that goes on (after the last
  answer), or none; and which, where the variable `thinking` turns reasoning on. The rest it drops by design. An answer
  that names `</think>` has none, and is said whole; one that begins with `<think>` has its reasoning in it.
- **text before a call**: *with it*, as the template has it; *apart*, in a message of its own; *as reasoning*, at the
  end of the reasoning; *in words*: the call is written into the content as the model writes it, and results are turns
  of the user. Where two are given, the first is for the turn that goes on, the second for turns that were answered.
- **two calls**: *together*; *in a row*, in a message each; *in turn*, each with its result after it.
- **broken arguments** (no JSON, or cut off): *as text*; *in an object*, as `{"arguments": "…"}`; or *in words*.
- **further system messages**, and those of the developer: *yes*, where they stand; *as user*: the first ones are
  joined, later ones are text of the user.

The template of gpt-oss says one call in a message, gives a result the name of the last call, and refuses text beside
reasoning and a call. The format `harmony` could write the conversation itself, with text in the commentary channel. The
template does it here: it is what the model's vendor publishes and other engines render, tools and system message
included, and with one call at a time, its result after it, and text at the end of the reasoning it says everything, in
the order in which the model was trained to write it. Mistral Nemo's template puts the system message before the last
message of the user.
"""

_COLUMNS = {
    "content": ("content", "content of many lines"),
    "reasoning": ("reasoning and content", "reasoning and a call"),
    "a call": ("a call",),
    "several calls": ("several calls",),
    "with content": ("content and a call",),
    "nested arguments": ("nested arguments",),
}


def document() -> str:
    rows = [_row("template", "format", *_COLUMNS, "what the template itself loses, and notes")]
    rows.append("| --- | --- |" + " --- |" * (len(_COLUMNS) + 1))
    rows += sorted([*map(_template, TEMPLATES.values()), *map(_without, WITHOUT_FORMAT)], key=str.lower)
    said = [_row("template", *_SAID), "| --- |" + " --- |" * len(_SAID)]
    said += sorted(map(_conversations, ALL_TEMPLATES), key=str.lower)
    return "\n".join([_HEAD, *rows, _CONVERSATIONS, *said, ""])


_SAID = ("reasoning", "text before a call", "two calls", "broken arguments", "further system messages")
_USER, _ANSWER = {"role": "user", "content": "Go."}, {"role": "assistant", "content": "Done."}


def _conversations(name: str) -> str:
    builder = vendor_builder(name)

    def said(step: list[dict[str, Any]], *after: dict[str, Any], **variables: bool) -> tuple[str, set[str]]:
        prompt = builder.build([_USER, *step, *after], tools=TOOLS, template_kwargs=variables)
        return prompt.text, set(prompt.notes)

    def reasoning(**variables: bool) -> str:
        """Which reasoning is said: of a step that goes on, of one that was answered, of an answer."""
        step, answer = _step(1, reasoning_content="Hmmm."), {**_ANSWER, "reasoning_content": "Hmmm."}
        turns = step, [*step, _ANSWER, _USER], [answer, _USER]
        return _REASONING["".join("ny"["Hmmm." in said(turn, **variables)[0]] for turn in turns)]

    texts = [said(_step(1, content="Aha."), *after)[1] for after in ((), (_ANSWER, _USER))]
    spoken = list(dict.fromkeys(_way(notes, _TEXT_WAYS, "with it") for notes in texts))
    plain, thinking = reasoning(), reasoning(thinking=True)
    order = builder.build([_SYSTEM, {**_SYSTEM, "role": "developer"}, _USER, _SYSTEM, _ANSWER, _USER]).notes
    return _row(
        name,
        plain if plain == thinking else f"{plain}; with `thinking`: {thinking}",
        ", ".join(spoken),
        _way(said(_step(2))[1], _CALL_WAYS, "together"),
        _way(said(_step(1, arguments='{"city": "Par'))[1], _ARGUMENT_WAYS, "as text"),
        "as user" if any("order" in note for note in order) else "yes",
    )


_REASONING = {"yyy": "all", "yyn": "of messages with calls", "ynn": "of the turn that goes on", "nnn": "none"}
_SYSTEM = {"role": "system", "content": "Be brief."}
_WORDS = {"written into the content": "in words"}
_TEXT_WAYS = {**_WORDS, "end of the reasoning": "as reasoning", "apart": "apart"}
_CALL_WAYS = {**_WORDS, "its result after it": "in turn", "message of its own": "in a row"}
_ARGUMENT_WAYS = {**_WORDS, "value of one": "in an object"}


def _way(notes: set[str], ways: dict[str, str], plain: str) -> str:
    return next((way for words, way in ways.items() if any(words in note for note in notes)), plain)


def _step(count: int, arguments: str = '{"city": "Paris"}', **more: str) -> list[dict[str, Any]]:
    calls = [
        {"id": f"call{at}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for at in range(count)
    ]
    results = [{"role": "tool", "tool_call_id": f"call{at}", "content": "Sunny."} for at in range(count)]
    return [{"role": "assistant", "content": "", "tool_calls": calls, **more}, *results]


def _template(template: Template) -> str:
    options = ", ".join(f"{key}={value}" for key, value in template.options.items() if isinstance(value, bool))
    return _row(
        template.file + (f" ({options})" if options else ""),
        ", ".join(f"`{format}`" for format in template.formats),
        *(_verdict(template, names) for names in _COLUMNS.values()),
        " ".join([*(loss.what for loss in template.losses), template.note]).strip(),
    )


def _without(file: str) -> str:
    return _row(file, "", *("–" for _ in _COLUMNS), f"It {WITHOUT_FORMAT[file]}.")


def _verdict(template: Template, names: tuple[str, ...]) -> str:
    """How the turns of these names come back, at worst."""
    verdicts = {_come_back(template, name, given_as) for name, given_as in template.turns() if name in names}
    return next((verdict for verdict in ("no", "less", "yes") if verdict in verdicts), "–")


def _come_back(template: Template, name: str, arguments_as: ArgumentsAs) -> str:
    prompt, output = written(template, TURNS[name], arguments_as)
    message = unbraid.parse(template.formats[0], output, tools=TOOLS, prompt=prompt)
    left = template.left_of(TURNS[name], arguments_as)
    if message != left.message():
        return "no"
    return "yes" if left == template.spelled(TURNS[name], arguments_as) else "less"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.exit(main(__doc__, DOCUMENT, document, sys.argv[1:]))
