"""A model that is served: its format, its prompts and its limits (`Model`), and with its engine (`Served`).

A plan for a request is made of a `Model` alone. It holds no engine and nothing that belongs to this process, so plans
can be made in another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..constraints.printers import GrammarSyntax
from ..core.compiler.compiler import compile_format
from ..core.grammar import Format
from ..core.vocabulary import Detokenizer, Vocabulary
from ..engines import Engine
from ..templates import Encoder, PromptBuilder, PromptTooLarge, encode_inside, sanitize_text
from .errors import ApiError
from .observing.exchange import note_model
from .vocoder import Vocoder


@dataclass(kw_only=True)
class Model:
    """A model, as far as plans need it."""

    format: Format
    builder: PromptBuilder | None
    """None where there is no chat template: then there are only completions."""
    encoder: Encoder | None = None
    """None where only the engine knows the tokenizer: prompts and outputs are text then."""
    context: int | None = None
    """The most tokens that prompt and output can have together, where the engine has said it."""
    own_ends: tuple[int, ...] = ()
    """The tokens at which an engine ends by itself, as the model's files say."""
    bos: int | None = None
    """The token that begins a raw prompt."""
    longest: int | None = None
    """Prompts of more characters cannot fit the context."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for what requests do not set."""
    syntax: GrammarSyntax | None = None
    """The syntax of the grammars that the engine takes, if it takes any."""
    constrain_auto: bool = False
    """Whether optional calls are constrained where no tool is strict, too. It costs nothing with a lazy grammar."""
    unconstrained: bool = False
    """Whether the engine refuses constraints."""
    loose_schemas: bool = False
    """Whether strict schemas are taken that the engine cannot enforce in full."""
    hears: bool = False
    """Whether messages may contain recordings."""
    unknown_tools: Literal["text", "emit"] = "emit"
    """How a call to an unknown tool is treated, if the request has tools."""
    most_choices: int = 128
    """How many outputs one request may ask for."""

    def __post_init__(self) -> None:
        if self.vocabulary is not None:
            self.format = self.format.for_version(self.vocabulary.version)

    @property
    def vocabulary(self) -> Vocabulary | None:
        return None if self.encoder is None else self.encoder.vocabulary

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a turn of the format."""
        return tuple(sorted(compile_format(self.format, self.vocabulary).ends))

    def check_count(self, choices: int, param: str) -> None:
        """Raises `ApiError` where a request asks for too many outputs."""
        if choices > self.most_choices:
            message = f"{param}: {choices} outputs are too many for one request; {self.most_choices} is the most"
            raise ApiError(400, message, param=param)

    def check_ids(self, param: str) -> None:
        """Raises `ApiError` where the field `param` asks for token ids and only the engine knows them."""
        if param and self.encoder is None:
            message = f"{param}: the engine gives text and no token ids here; leave it out, or start with --tokenizer"
            raise ApiError(400, message, param=param, code="unsupported")

    def chat_builder(self) -> PromptBuilder:
        if self.builder is None:
            raise ApiError(400, "the model has no chat template: use /v1/completions, or start with --chat-template")
        return self.builder

    def raw_prompt(self, text: str) -> str | tuple[int, ...]:
        """The ids of a prompt that the client has put together. Control tokens in it count as such."""
        if self.encoder is None:
            return text
        if self.longest is not None and len(text) > self.longest:
            raise PromptTooLarge(f"a prompt of {len(text)} characters cannot fit the model's context", field="prompt")
        ids = tuple(self.encoder.encode(self.encoder.controls.mark_all(sanitize_text(text))))
        return ids if self.bos is None or ids[:1] == (self.bos,) else (self.bos, *ids)

    def encode_output(self, text: str) -> tuple[int, ...]:
        """The ids of text in the middle of an output. Control tokens in it count as such."""
        if self.encoder is None:
            raise ApiError(400, "the tokens of the model are known to the engine alone")
        return encode_inside(self.encoder, self.encoder.controls.mark_all(sanitize_text(text)))

    def text_of(self, prompt: str | tuple[int, ...]) -> str:
        """A prompt as text."""
        if isinstance(prompt, str):
            return prompt
        if self.vocabulary is None:
            raise ApiError(400, "echo: the tokens of the prompt are known to the engine alone; give it as text")
        return Detokenizer(self.vocabulary).text(prompt, {})


def chosen(models: Mapping[str, Model], name: str | None) -> Model:
    """The model of that name, the first where none is named. Raises `ApiError` for one that is not served."""
    name = next(iter(models), None) if name is None else name
    if name is None or name not in models:
        raise not_served(name, models)
    note_model(name)
    return models[name]


def not_served(name: str | None, names: Collection[str]) -> ApiError:
    if not names:
        message = "this server only transcribes or speaks: start it with --model for a model that writes"
        return ApiError(404, message, param="model", code="model_not_found")
    are = "it is" if len(names) == 1 else "there are"
    message = f"the model {name!r} is not served here; {are} {', '.join(map(repr, names))}"
    return ApiError(404, message, param="model", code="model_not_found")


@dataclass(kw_only=True)
class Served:
    """A model with its engine, ready to answer."""

    model: Model
    engine: Engine
    names: tuple[str, ...] = ()
    """The names that clients use for the model. Replies have the first."""
    vocoder: Vocoder | None = None
    """Turns the codes of speech into sound."""

    def __post_init__(self) -> None:
        self.names = self.names or (self.engine.model or "model",)

    def current(self) -> Model:
        """The model, with what the engine has said of it by now."""
        self.model.context = self.engine.context
        return self.model
