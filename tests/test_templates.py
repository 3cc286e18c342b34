"""Law 10, the vendors' half: what a vendor's own code writes for an assistant's turn parses back to that turn.

The vendors' code is the chat templates in the shared data, rendered as Hugging Face renders them, and the encoders of
mistral-common. Where these lose something of the turn themselves, `LOSSES` says what, and just that must be missing.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, NoReturn

import pytest
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from mistral_common.exceptions import TokenizerException
from mistral_common.protocol.instruct import tool_calls as mistral_calls
from mistral_common.protocol.instruct.chunk import TextChunk, ThinkChunk
from mistral_common.protocol.instruct.messages import AssistantMessage

import unbraid
from unbraid import Message, Parser, Text, ToolCall

from . import real_tokenizers
from .shared_data import SHARED, absent
from .walks import constraint_accepts

FOLDER = SHARED / "templates"


# The turns


@dataclass(frozen=True)
class Turn:
    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Names, and arguments as JSON text."""
    reasoning: str = ""

    def message(self) -> Message:
        texts = (Text("reasoning", self.reasoning), Text("content", self.content))
        return Message((*(text for text in texts if text.text), *(ToolCall(*call) for call in self.calls)))

    def rewritten(self) -> Turn:
        """With the arguments as Python writes them."""
        return replace(self, calls=tuple((name, _json(json.loads(arguments))) for name, arguments in self.calls))


def _json(value: object, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


PARIS = ("get_weather", '{"city": "Paris"}')
NESTED = (
    '{"b":[1, {"c" : null}], "a":{"é": "你好 🦙 \\u00e9 \\"\\\\\\n"},"n": 12345678901234567890, "x":-1.50e-3, "": true}'
)
MARKUP = (
    '{"text": "</tool_call>\\n<tool_call>\\n{\\"name\\": \\"now\\"} <think> </think> <|im_end|> </s> <s> '
    '[TOOL_CALLS][{\\"name\\": 1}] [/TOOL_CALLS] now[ARGS]{} [CALL_ID]x [THINK] [/THINK] [/INST]"}'
)
OTHER_MARKUP = (
    '{"text": "<tool_call> <function=now> {\\"name\\": \\"now\\"} <think> </think> <|im_end|> [TOOL_CALLS] [ARGS]"}'
)
LINES = "\n\n# Über 3 < 4\n\n- 你好 🦙\n- `a[0]` {b}, <b>\n\n"

TURNS = {
    "content": Turn("Hello, world."),
    "content of many lines": Turn(LINES),
    "space around the content": Turn("  Hello, world.  "),
    "a call": Turn(calls=(PARIS,)),
    "several calls": Turn(calls=(PARIS, ("now", "{}"), ("get_weather", '{"city": "Tōkyō", "days": 3}'))),
    "content and a call": Turn("Let me look. ", (PARIS,)),
    "lines of content and calls": Turn(LINES, (PARIS, PARIS)),
    "nested arguments": Turn(calls=(("get_weather", NESTED),)),
    "markup in arguments": Turn(calls=(("get_weather", MARKUP), PARIS)),
    "other markup in arguments": Turn(calls=(("get_weather", OTHER_MARKUP), PARIS)),
    "reasoning and content": Turn("Hello, world.", reasoning="They greet me.\n\nI greet them."),
    "reasoning and a call": Turn(calls=(PARIS,), reasoning="They ask for the weather."),
    "reasoning, content and calls": Turn("Let me look.", (PARIS, ("now", "{}")), "They ask for the weather."),
    "space around all": Turn(" \n\nLet me look.\n\n ", (PARIS,), " \n\nThey ask.\n\nI look.\n\n "),
}

PARAMETERS = {"city": "string", "text": "string", "days": "integer"}
PARAMETERS |= {"b": "array", "a": "object", "n": "integer", "x": "number", "": "boolean"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Says the {name}.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind, "description": key} for key, kind in parameters.items()},
            },
        },
    }
    for name, parameters in {"get_weather": PARAMETERS, "now": {}}.items()
]
USER = {"role": "user", "content": "What is the weather in Paris?"}
IDS = [f"Call0000{n}" for n in range(1, 10)]
"""Mistral's ids are 9 letters or digits."""


# The templates

ArgumentsAs = Literal["object", "text"]


@dataclass(frozen=True)
class Template:
    file: str
    formats: tuple[str, ...]
    start: str
    """What the template writes before an assistant's output."""
    end: str
    """What it writes after it."""
    options: Mapping[str, object] = field(default_factory=dict)
    arguments: tuple[ArgumentsAs, ...] = ("object", "text")
    """How the template may be given arguments; none where the format has no calls. Both ways come back byte for byte:
    an object as the template writes it, text as it is."""
    reasoning: Literal["", "field", "content"] = ""
    """How it is given reasoning: not at all, as `reasoning_content`, or in the content, as the model wrote it."""
    tags: tuple[str, ...] = ()
    """What ends an argument, where arguments stand bare in the text: no argument can hold it."""
    ids: bool = False
    """Whether it writes the ids of calls before their arguments. An id that comes after them comes too late: the call
    has begun by then (law 4), with an id that was made for it."""


CHAT_ML = ("<|im_start|>assistant\n", "<|im_end|>\n")
QWEN3 = Template("Qwen-Qwen3-0.6B", ("qwen3",), *CHAT_ML, reasoning="field")
HERMES = Template("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ("hermes",), *CHAT_ML)
R1 = Template(
    "llama-cpp-deepseek-r1", ("deepseek-r1",), "<｜Assistant｜>", "<｜end▁of▁sentence｜>", {}, (), reasoning="content"
)

TEMPLATES = {
    "Qwen 3": QWEN3,
    "Qwen 3, not thinking": replace(QWEN3, options={"enable_thinking": False}),
    "Qwen 2.5": Template("Qwen-Qwen2.5-7B-Instruct", ("qwen2.5",), *CHAT_ML),
    "Qwen 3 Coder": Template(
        "Qwen3-Coder", ("qwen3-coder",), *CHAT_ML, arguments=("object",), tags=("</tool_call>", "</parameter>")
    ),
    "QwQ": Template("Qwen-QwQ-32B", ("qwen3-thinking",), *CHAT_ML, {"enable_thinking": True}, reasoning="content"),
    "Hermes 3": HERMES,
    "Hermes 2 Pro": replace(HERMES, file="NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"),
    "Mistral Nemo": Template("mistralai-Mistral-Nemo-Instruct-2407", ("mistral", "mistral-v3"), "", "</s>"),
    # It would write arguments that are given as text as a JSON string, which is no grammar of Mistral's.
    "Mistral Small 3.2": Template(
        "Mistral-Small-3.2-24B-Instruct-2506", ("mistral", "mistral-v11"), "", "</s>", {}, ("object",), ids=True
    ),
    "Devstral": Template("unsloth-mistral-Devstral-Small-2507", ("mistral", "mistral-v13"), "", "</s>"),
    "DeepSeek R1": R1,
    "DeepSeek R1 Distill Llama": replace(R1, file="deepseek-ai-DeepSeek-R1-Distill-Llama-8B"),
    "DeepSeek R1 Distill Qwen": replace(R1, file="deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
}


# What the vendors' code itself loses


@dataclass(frozen=True)
class Loss:
    what: str
    left: Callable[[Turn], Turn]
    """What is left of a turn."""


NO_CONTENT = Loss(
    "The content of a message that has calls is not written.",
    lambda turn: replace(turn, content="") if turn.calls else turn,
)
QWEN3_STRIPS = Loss(
    "Line breaks around the reasoning and before the content are stripped.",
    lambda turn: replace(turn, content=turn.content.lstrip("\n"), reasoning=turn.reasoning.strip("\n")),
)
CODER_STRIPS = Loss(
    "The content before calls is stripped, and a line break of its own follows it.",
    lambda turn: replace(turn, content=turn.content.strip() + "\n") if turn.content and turn.calls else turn,
)
NO_REASONING = Loss(
    "All up to </think> is cut off. The line breaks after it stay, and nothing says that they are not content.",
    lambda turn: replace(turn, content="\n\n" + turn.content, reasoning="") if turn.reasoning else turn,
)
NO_FINAL_SPACE = Loss(
    "Spaces at the end of the content are stripped, save where reasoning makes it a list of chunks.",
    lambda turn: turn if turn.reasoning else replace(turn, content=turn.content.rstrip(" ")),
)

LOSSES: dict[str, list[Loss]] = {
    "Qwen 3": [QWEN3_STRIPS],
    "Qwen 3, not thinking": [QWEN3_STRIPS],
    "Qwen 3 Coder": [CODER_STRIPS],
    "Hermes 3": [NO_CONTENT],
    "Hermes 2 Pro": [NO_CONTENT],
    "Mistral Nemo": [NO_CONTENT],
    "Mistral Small 3.2": [NO_CONTENT],
    "DeepSeek R1": [NO_REASONING],
    "DeepSeek R1 Distill Llama": [NO_REASONING],
    "DeepSeek R1 Distill Qwen": [NO_REASONING],
    "mistral-common v2": [NO_FINAL_SPACE],
    "mistral-common v3": [NO_FINAL_SPACE],
    "mistral-common v3 tekken": [NO_FINAL_SPACE],
    "mistral-common v7": [NO_FINAL_SPACE],
    "mistral-common v7 tekken": [NO_FINAL_SPACE],
    "mistral-common v11": [NO_FINAL_SPACE],
    "mistral-common v13": [NO_FINAL_SPACE],
}


def left_of(turn: Turn, vendor: str) -> Turn:
    for loss in LOSSES.get(vendor, []):
        turn = loss.left(turn)
    return turn


# Rendering, as Hugging Face does


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = datetime.date(2025, 1, 1).strftime
    return environment


def render(template: Template, messages: list[dict[str, Any]], generate: bool = False) -> str:
    path = FOLDER / f"{template.file}.jinja"
    if not path.exists():
        pytest.skip(absent(path))
    return (
        _environment()
        .from_string(path.read_text(encoding="utf-8"))
        .render(
            messages=messages,
            tools=TOOLS if template.arguments else None,
            add_generation_prompt=generate,
            bos_token="<s>",
            eos_token="</s>",
            **template.options,
        )
    )


def assistant(template: Template, turn: Turn, arguments_as: ArgumentsAs) -> dict[str, Any]:
    """The turn as a message for the template."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if turn.reasoning and template.reasoning == "field":
        message["reasoning_content"] = turn.reasoning
    elif turn.reasoning:
        message["content"] = f"<think>\n{turn.reasoning}\n</think>\n\n{turn.content}"
    if turn.calls:
        message["tool_calls"] = [
            {
                "type": "function",
                "id": id,
                "function": {
                    "name": name,
                    "arguments": arguments if arguments_as == "text" else json.loads(arguments),
                },
            }
            for id, (name, arguments) in zip(IDS, turn.calls, strict=False)
        ]
    return message


def written(template: Template, message: dict[str, Any]) -> tuple[str, str]:
    """The prompt, and what the assistant wrote after it."""
    whole = render(template, [USER, message])
    prompt = render(template, [USER], generate=True)
    if not whole.startswith(prompt):  # the prompt opens reasoning, and the turn has none
        prompt = render(template, [USER]) + template.start
    assert whole.startswith(prompt)
    assert whole.endswith(template.end)
    return prompt, whole[len(prompt) : len(whole) - len(template.end)]


def template_cases() -> Iterator[tuple[str, str, ArgumentsAs]]:
    for vendor, template in TEMPLATES.items():
        for name, turn in TURNS.items():
            if turn.reasoning and not template.reasoning:
                continue
            if any(tag in arguments for tag in template.tags for _, arguments in turn.calls):
                continue
            if not turn.calls:
                yield vendor, name, "object"
            else:
                yield from ((vendor, name, arguments_as) for arguments_as in template.arguments)


@pytest.mark.parametrize(("vendor", "name", "arguments_as"), list(template_cases()))
def test_what_a_template_writes_parses_back(vendor: str, name: str, arguments_as: ArgumentsAs) -> None:
    template, turn = TEMPLATES[vendor], TURNS[name]
    prompt, output = written(template, assistant(template, turn, arguments_as))
    expected = left_of(turn if arguments_as == "text" else turn.rewritten(), vendor).message()
    for format in template.formats:
        message = unbraid.parse(format, output, tools=TOOLS, prompt=prompt)
        assert message == expected
        assert not message.diagnostics
        if template.ids:
            assert [call.id for call in message.tool_calls] == IDS[: len(message.tool_calls)]
        if format.startswith("mistral"):
            assert all(re.fullmatch("[a-zA-Z0-9]{9}", call.id) for call in message.tool_calls)
        parser = unbraid.parser(format, tools=TOOLS, prompt=prompt)
        assert piecewise(parser.feed, parser, list(output)) == expected


@pytest.mark.parametrize(("vendor", "name", "arguments_as"), list(template_cases()))
def test_what_a_template_writes_is_what_the_constraint_accepts(
    vendor: str, name: str, arguments_as: ArgumentsAs
) -> None:
    template, turn = TEMPLATES[vendor], TURNS[name]
    prompt, output = written(template, assistant(template, turn, arguments_as))
    # Given a string, some templates quote it. That is read, but it is not what the model should write.
    quoted = '"arguments": "' in output
    for format in template.formats:
        constraint = unbraid.constraint(format, tools=TOOLS if template.arguments else None, prompt=prompt)
        assert constraint_accepts(constraint, output) is not quoted


def piecewise(feed: Callable[[Any], object], parser: Parser, pieces: list[Any]) -> Message:
    for piece in pieces:
        feed(piece)
    parser.finish()
    return parser.message


@pytest.mark.parametrize("vendor", LOSSES)
def test_every_loss_is_one(vendor: str) -> None:
    """The table names no loss that no turn shows."""
    turns = [TURNS[name] for other, name, _ in [*template_cases(), *encoder_cases()] if other == vendor]
    for loss in LOSSES[vendor]:
        assert any(loss.left(turn) != turn for turn in turns), loss.what


@pytest.mark.parametrize(
    ("vendor", "thinking", "output"),
    [
        ("Qwen 3", True, "<think>\nHm.\n</think>\n\nYes."),
        ("Qwen 3", False, "Yes."),
        ("QwQ", True, "Hm.\n</think>\n\nYes."),
        ("QwQ", False, "Yes."),
        ("DeepSeek R1", True, "Hm.\n</think>\n\nYes."),
        ("DeepSeek R1 Distill Llama", True, "Hm.\n</think>\n\nYes."),
        ("DeepSeek R1 Distill Qwen", True, "Hm.\n</think>\n\nYes."),
        ("DeepSeek R1 Distill Qwen", False, "Yes."),
    ],
)
def test_the_generation_prompt_says_where_the_output_begins(vendor: str, thinking: bool, output: str) -> None:
    template = replace(TEMPLATES[vendor], options={"enable_thinking": thinking})
    prompt = render(template, [USER], generate=True)
    expected = Turn("Yes.", reasoning="Hm." if thinking else "").message()
    for format in template.formats:
        assert unbraid.parse(format, output, prompt=prompt) == expected


# mistral-common's encoders


@dataclass(frozen=True)
class Encoder:
    version: int
    tekken: bool
    format: str
    ids: bool = False
    """As for templates: whether it writes ids before the arguments."""

    def takes(self, turn: Turn) -> bool:
        """Whether the encoder takes such a turn; if not, it raises an error."""
        if turn.reasoning:
            return self.version >= 13
        return self.version >= 7 or not (turn.content and turn.calls)


ENCODERS = {
    "mistral-common v2": Encoder(2, False, "mistral-v3"),
    "mistral-common v3": Encoder(3, False, "mistral-v3"),
    "mistral-common v3 tekken": Encoder(3, True, "mistral-v3"),
    "mistral-common v7": Encoder(7, False, "mistral-v3"),
    "mistral-common v7 tekken": Encoder(7, True, "mistral-v3"),
    "mistral-common v11": Encoder(11, True, "mistral-v11", ids=True),
    "mistral-common v13": Encoder(13, True, "mistral-v13"),
}


def encoder_cases() -> Iterator[tuple[str, str, str]]:
    for vendor in ENCODERS:
        for name in TURNS:
            yield vendor, name, ""


def encode(encoder: Encoder, turn: Turn) -> list[int]:
    calls = [
        mistral_calls.ToolCall(id=id, function=mistral_calls.FunctionCall(name=name, arguments=arguments))
        for id, (name, arguments) in zip(IDS, turn.calls, strict=False)
    ]
    content: Any = turn.content or None
    if turn.reasoning:
        content = [ThinkChunk(thinking=turn.reasoning), *([TextChunk(text=turn.content)] if turn.content else [])]
    instruct: Any = real_tokenizers.mistral(encoder.version, tekken=encoder.tekken).instruct_tokenizer
    message = AssistantMessage(content=content, tool_calls=calls or None)
    ids: list[int] = instruct.encode_assistant_message(message, is_before_last_user_message=False)
    return ids


@pytest.mark.parametrize(("vendor", "name"), [(vendor, name) for vendor, name, _ in encoder_cases()])
def test_what_mistral_common_encodes_parses_back(vendor: str, name: str) -> None:
    encoder, turn = ENCODERS[vendor], TURNS[name]
    if not encoder.takes(turn):
        with pytest.raises((ValueError, AssertionError, TokenizerException)):
            encode(encoder, turn)
        return
    ids = encode(encoder, turn)
    tokenizer = real_tokenizers.mistral(encoder.version, tekken=encoder.tekken)
    expected = left_of(turn.rewritten(), vendor).message()  # the encoders read the arguments and write them anew
    for size in (len(ids), 1, 2, 3, 4, 5, 6):
        parser = unbraid.parser("mistral", tools=TOOLS, tokenizer=tokenizer)
        assert parser.format.name == encoder.format
        groups = [ids[at : at + size] for at in range(0, len(ids), size)]
        message = piecewise(parser.feed_tokens, parser, groups)
        assert message == expected
        assert not message.diagnostics
        assert all(re.fullmatch("[a-zA-Z0-9]{9}", call.id) for call in message.tool_calls)
        if encoder.ids:
            assert [call.id for call in message.tool_calls] == IDS[: len(message.tool_calls)]
    masks = unbraid.constraint("mistral", tools=TOOLS, tokenizer=tokenizer).masks()
    for token in ids[:-1]:  # the last one ends the turn
        masks.advance(token)
    assert masks.may_end
