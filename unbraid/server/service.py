"""All that requests are answered with: one model, its engine, its format and its template."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..core.detokenizer import Detokenizer
from ..core.grammar import Format
from ..core.program import compile_format
from ..core.vocabulary import Vocabulary
from ..engines import Engine
from ..prompts import Encoder, PromptBuilder
from ..prompts.marks import clean
from .errors import ApiError
from .metrics import Metrics
from .vocoder import Vocoder


@dataclass(kw_only=True)
class Service:
    """One model, ready to answer."""

    engine: Engine
    format: Format
    builder: PromptBuilder | None
    """None where there is no chat template: then there are only completions."""
    encoder: Encoder | None = None
    """None where only the engine knows the tokenizer: prompts and outputs are text then."""
    bos: int | None = None
    """The token that begins a raw prompt."""
    names: tuple[str, ...] = ()
    """What clients call the model, the first of them in replies."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What requests leave open."""
    constrain_auto: bool = False
    """Whether calls that the model may make or not are constrained even where no tool is strict: free where the
    engine's grammar sleeps until a call begins."""
    unknown_tools: Literal["text", "emit"] = "text"
    reasoning_field: Literal["both", "reasoning_content", "reasoning"] = "both"
    vocoder: Vocoder | None = None
    api_keys: tuple[str, ...] = ()
    max_body: int = 64_000_000
    draining: bool = False
    """Set, no more requests are taken: the server is about to end."""
    created: int = field(default_factory=lambda: int(time.time()))
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(lambda: self.engine.load)
        if self.vocabulary is not None:
            self.format = self.format.for_version(self.vocabulary.version)
        self.names = self.names or (self.engine.model or "model",)

    @property
    def vocabulary(self) -> Vocabulary | None:
        return None if self.encoder is None else self.encoder.vocabulary

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """The tokens that end a turn of the format."""
        return tuple(sorted(compile_format(self.format, self.vocabulary).ends))

    def check_model(self, name: str | None) -> str:
        """The name for the reply. Raises `ApiError` for one that is not served."""
        if name is None or name in self.names:
            return name or self.names[0]
        served = ", ".join(map(repr, self.names))
        raise ApiError(
            404, f"the model {name!r} is not served here; it is {served}", param="model", code="model_not_found"
        )

    def chat_builder(self) -> PromptBuilder:
        if self.builder is None:
            raise ApiError(400, "the model has no chat template: use /v1/completions, or start with --chat-template")
        return self.builder

    def reasoning_keys(self) -> tuple[str, ...]:
        return ("reasoning_content", "reasoning") if self.reasoning_field == "both" else (self.reasoning_field,)

    def raw_prompt(self, text: str) -> str | tuple[int, ...]:
        """A prompt that the client has put together: control tokens in it are meant."""
        if self.encoder is None:
            return text
        ids = tuple(self.encoder.encode(self.encoder.controls.mark_rest(clean(text))))
        return ids if self.bos is None or ids[:1] == (self.bos,) else (self.bos, *ids)

    def text_of(self, prompt: str | tuple[int, ...]) -> str:
        """A prompt as text."""
        if isinstance(prompt, str):
            return prompt
        if self.vocabulary is None:
            raise ApiError(400, "echo: the tokens of the prompt are known to the engine alone; give it as text")
        return Detokenizer(self.vocabulary).text(prompt, {})
