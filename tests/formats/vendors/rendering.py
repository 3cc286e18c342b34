"""A vendor's chat template: how it is given an assistant's turn, and what it writes for it.

It is rendered as Hugging Face renders it, by `unbraid.prompts`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from jinja2.sandbox import SandboxedEnvironment

from unbraid.templates import ChatTemplate

from ...templates.prompt_models import template_source
from .turns import IDS, TOOLS, TURNS, USER, Loss, Turn, left_of, to_json

ArgumentsAs = Literal["object", "text"]


def _never(turn: Turn) -> bool:
    return False


@dataclass(frozen=True)
class Template:
    file: str
    formats: tuple[str, ...]
    starts: tuple[str, ...]
    """What the template may write before an assistant's output; the first of them that it did write is the prompt's."""
    ends: tuple[str, ...]
    """What it may write after it."""
    losses: tuple[Loss, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[ArgumentsAs, ...] = ("object", "text")
    """How the template may be given arguments; none where it writes no calls. Both ways come back byte for byte:
    an object as the template writes it, text as it is."""
    reasoning: Literal["", "field", "content", "blocks"] = ""
    """How it is given reasoning: not at all, as `reasoning_content`, in the content, as the model wrote it, or as a
    block of the content."""
    refuses: Callable[[Turn], bool] = _never
    """Turns for which it raises an error."""
    tags: tuple[str, ...] = ()
    """What ends an argument, where arguments stand bare in the text: no argument can hold it."""
    ids: bool = False
    """Whether it writes the ids of calls before their arguments. An id that comes after them comes too late: the call
    has begun by then (law 4), with an id that was made for it."""
    spelling: Callable[[object], str] = to_json
    """How it writes arguments that it is given as objects."""
    tools: list[dict[str, Any]] | None = field(default_factory=lambda: TOOLS)
    """The tools that it can be told."""
    null: bool = False
    """Whether a turn without content must have `None` for it."""
    more: bool = False
    """Whether it writes more after the turn, or not all that should end it. Then the turn ends with its first end."""
    followed: bool = False
    """Whether it writes a turn in its own way only if another message follows."""
    opens: Callable[[Turn], bool] = _never
    """Turns that it leaves open: a diagnostic says so, and no constraint admits it."""
    unusual: frozenset[str] = frozenset()
    """Turns that it writes in a way that is read, but no constraint asks for it. The note says what."""
    unsafe: bool = False
    """Whether it does what the sandbox forbids, Hugging Face's as well as ours: it is rendered in a wider one."""
    note: str = ""

    def turns(self) -> Iterator[tuple[str, ArgumentsAs]]:
        """The turns that it can be given, and how."""
        for name, turn in TURNS.items():
            if (turn.reasoning and not self.reasoning) or self.refuses(turn):
                continue
            if any(tag in arguments for tag in self.tags for _, arguments in turn.calls):
                continue
            if not turn.calls:
                yield name, "object"
            else:
                yield from ((name, arguments_as) for arguments_as in self.arguments)

    def spelled(self, turn: Turn, arguments_as: ArgumentsAs) -> Turn:
        """The turn with its arguments as the template writes them."""
        if arguments_as == "text":
            return turn
        calls = tuple((name, self.spelling(json.loads(arguments))) for name, arguments in turn.calls)
        return replace(turn, calls=calls)

    def left_of(self, turn: Turn, arguments_as: ArgumentsAs) -> Turn:
        """What a turn should come back as."""
        return left_of(self.spelled(turn, arguments_as), self.losses)


@cache
def _compiled(file: str) -> ChatTemplate:
    return ChatTemplate(template_source(file), bos_token="<s>", eos_token="</s>", name=file)


@cache
def _unsafe() -> SandboxedEnvironment:
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = to_json
    return environment


def render(template: Template, messages: list[dict[str, Any]], generate: bool = False) -> str:
    if template.unsafe:
        source = _unsafe().from_string(template_source(template.file))
        return source.render(messages=messages, tools=template.tools, add_generation_prompt=generate)
    options = dict(template.options)
    return _compiled(template.file).render(messages, template.tools, add_generation_prompt=generate, **options)


def assistant(template: Template, turn: Turn, arguments_as: ArgumentsAs) -> dict[str, Any]:
    """The turn as a message for the template."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.content or (None if template.null else "")}
    calls = [
        {"name": name, "arguments": arguments if arguments_as == "text" else json.loads(arguments)}
        for name, arguments in turn.calls
    ]
    if turn.reasoning and template.reasoning == "blocks":
        message["content"] = {"blocks": list(_blocks(turn, arguments_as))}
        return message
    if turn.reasoning and template.reasoning == "field":
        message["reasoning_content"] = turn.reasoning
    elif turn.reasoning:
        message["content"] = f"<think>\n{turn.reasoning}\n</think>\n\n{turn.content}"
    if calls:
        message["tool_calls"] = [
            {"type": "function", "id": id, "function": call} for id, call in zip(IDS, calls, strict=False)
        ]
    return message


def _blocks(turn: Turn, arguments_as: ArgumentsAs) -> Iterator[dict[str, Any]]:
    """Arguments in blocks are always text."""
    given = turn if arguments_as == "text" else turn.rewritten()
    yield {"type": "thoughts", "text": turn.reasoning}
    if turn.content:
        yield {"type": "response", "text": turn.content}
    if turn.calls:
        yield {"type": "tool_calls", "calls": [{"name": name, "arguments": text} for name, text in given.calls]}


def written(template: Template, turn: Turn, arguments_as: ArgumentsAs) -> tuple[str, str]:
    """The prompt, and what the assistant wrote after it."""
    messages = [USER, assistant(template, turn, arguments_as)]
    whole = render(template, [*messages, {"role": "user", "content": "Go on."}] if template.followed else messages)
    prompt = render(template, [USER], generate=True)
    if not whole.startswith(prompt):  # the prompt opens reasoning, say, and the turn has none
        after = whole.index(USER["content"]) + len(USER["content"])
        found = next((start, whole.index(start, after)) for start in template.starts if start in whole[after:])
        prompt = whole[: found[1] + len(found[0])]
    output = whole[len(prompt) :]
    if template.more:
        return prompt, output[: min((output.index(end) for end in template.ends if end in output), default=None)]
    end = next(end for end in template.ends if output.endswith(end))
    return prompt, output[: len(output) - len(end)]
