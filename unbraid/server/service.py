"""The service: one model with its engine, its format and its chat template, and what goes with them.

Every handler gets it. `loading.service` makes one of the settings; tests put one together by hand.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from ..constraints import Constraint, Unenforced
from ..constraints.constraint import Dialect
from ..core.compiler.compiler import compile_format
from ..core.detokenizer import Detokenizer
from ..core.grammar import Format
from ..core.vocabulary import Vocabulary
from ..engines import Engine
from ..templates import Encoder, PromptBuilder, PromptTooLarge, sanitize_text
from .errors import ApiError
from .metrics import Metrics
from .storage.seal import Seal
from .storage.store import Store
from .vocoder import Vocoder

if TYPE_CHECKING:  # a server that only chats runs without the packages of speech
    from ..speech.transcriber import Transcriber

_log = logging.getLogger(__name__)
_PLANNERS = 4
_ARCHIVISTS = 4
_MOST_TOLD = 100
_SEPARATE = "☺"
"""A character that no token shares with its neighbours."""
P = ParamSpec("P")
T = TypeVar("T")


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
    longest: int | None = None
    """Prompts of more characters cannot fit the context."""
    names: tuple[str, ...] = ()
    """What clients call the model, the first of them in replies."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for what requests do not set."""
    constrain_auto: bool = False
    """Whether optional calls are constrained where no tool is strict, too. It costs nothing with a lazy grammar."""
    unconstrained: bool = False
    """Whether the engine refuses constraints."""
    loose_schemas: bool = False
    """Whether strict schemas are taken that the engine cannot enforce in full."""
    unknown_tools: Literal["text", "emit"] = "text"
    reasoning_field: Literal["both", "reasoning_content", "reasoning"] = "both"
    vocoder: Vocoder | None = None
    transcriber: Transcriber | None = None
    """Transcribes recordings, where a model for that is served."""
    listener_names: tuple[str, ...] = ()
    """What clients call that model."""
    max_audio: int = 25_000_000
    """The largest recording, in bytes."""
    max_audio_seconds: float = 4 * 3600.0
    api_keys: tuple[str, ...] = ()
    max_body: int = 64_000_000
    most_choices: int = 128
    """How many outputs one request may ask for."""
    dialect: Dialect | None = None
    """The dialect of constraints that the engine takes, if it takes any."""
    seal: Seal = field(default_factory=Seal)
    """Seals what clients keep for us."""
    store: Store | None = None
    """Keeps responses. None where nothing is to be kept."""
    background: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)
    """The responses that run with nobody waiting, by client and id."""
    draining: bool = False
    """The server is about to end, and takes no more requests."""
    created: int = field(default_factory=lambda: int(time.time()))
    metrics: Metrics = field(init=False)
    shutdown_seconds: float = 0.0
    """How long responses in the background may go on when the server is to end."""
    _planners: ThreadPoolExecutor = field(init=False)
    _archivists: ThreadPoolExecutor = field(init=False)
    _told: set[Unenforced] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        # Threads of its own, so that long plans do not keep other work waiting.
        self._planners = ThreadPoolExecutor(_PLANNERS, "unbraid-plan")
        self._archivists = ThreadPoolExecutor(_ARCHIVISTS, "unbraid-store")
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

    async def planned(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread for plans."""
        return await asyncio.get_running_loop().run_in_executor(self._planners, partial(work, *args, **kwargs))

    async def stored(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a thread for the store: a file that is locked must not hold up anything else."""
        return await asyncio.get_running_loop().run_in_executor(self._archivists, partial(work, *args, **kwargs))

    async def end_background(self) -> None:
        """Give what runs with nobody waiting its time to end, then end it. It is stored that it was cut off."""
        self.draining = True
        tasks = list(self.background.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self.shutdown_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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

    def log_unenforced(self, constraint: Constraint) -> None:
        """Log what the engine does not enforce, once."""
        for unenforced in [] if self.dialect is None else constraint.unenforced(self.dialect):
            if unenforced not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(unenforced)
                _log.warning("a constraint is not enforced in full: %s", unenforced)

    def check_model(self, name: str | None) -> str:
        """The name for the reply. Raises `ApiError` for one that is not served."""
        if name is None or name in self.names:
            return name or self.names[0]
        served = ", ".join(map(repr, self.names))
        raise ApiError(
            404, f"the model {name!r} is not served here; it is {served}", param="model", code="model_not_found"
        )

    def check_listener(self, name: str | None) -> str:
        """The same for the model that transcribes."""
        if name is None or name in self.listener_names:
            return name or self.listener_names[0]
        served = ", ".join(map(repr, self.listener_names))
        message = f"the model {name!r} does not transcribe here; it is {served}"
        raise ApiError(404, message, param="model", code="model_not_found")

    def chat_builder(self) -> PromptBuilder:
        if self.builder is None:
            raise ApiError(400, "the model has no chat template: use /v1/completions, or start with --chat-template")
        return self.builder

    def reasoning_keys(self) -> tuple[str, ...]:
        return ("reasoning_content", "reasoning") if self.reasoning_field == "both" else (self.reasoning_field,)

    def raw_prompt(self, text: str) -> str | tuple[int, ...]:
        """The ids of a prompt that the client has put together. Control tokens in it count as such."""
        if self.encoder is None:
            return text
        if self.longest is not None and len(text) > self.longest:
            raise PromptTooLarge(f"a prompt of {len(text)} characters cannot fit the model's context", field="prompt")
        ids = tuple(self.encoder.encode(self.encoder.controls.mark_all(sanitize_text(text))))
        return ids if self.bos is None or ids[:1] == (self.bos,) else (self.bos, *ids)

    def written(self, text: str) -> tuple[int, ...]:
        """The ids of text in the middle of what a model writes. Control tokens in it count as such."""
        if self.encoder is None:
            raise ApiError(400, "the tokens of the model are known to the engine alone")
        marked = self.encoder.controls.mark_all(sanitize_text(text))
        if not self.encoder.vocabulary.dummy_prefix:
            return tuple(self.encoder.encode(marked))
        # SentencePiece begins a text with a space of its own.
        before, both = self.encoder.encode(_SEPARATE), self.encoder.encode(_SEPARATE + marked)
        return tuple(both[len(before) :])

    def text_of(self, prompt: str | tuple[int, ...]) -> str:
        """A prompt as text."""
        if isinstance(prompt, str):
            return prompt
        if self.vocabulary is None:
            raise ApiError(400, "echo: the tokens of the prompt are known to the engine alone; give it as text")
        return Detokenizer(self.vocabulary).text(prompt, {})
