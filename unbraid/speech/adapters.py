"""What is particular to a family of models that listen: how one is asked, and what it writes.

`register` makes another family known; `unbraid serve` and `unbraid transcribe` then take its models.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..core.grammar import Format
from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from .audio.decode import Samples
from .listening import ListenRequest

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions:
    """What a user wants of a recording."""

    task: Task = "transcribe"
    language: str | None = None
    """A code or a name; None to have it detected."""
    languages: tuple[str, ...] = ()
    """Those that it may be; all, if there are none."""
    prompt: str = ""
    """Text that might stand before it: names, spellings, a style."""
    timestamps: bool = False
    words: bool = False
    """Whether to tell when each word was said."""
    temperature: float | None = None
    """None for 0, and then for higher ones where that fails."""
    beams: int = 1
    """How many outputs are followed at once where nothing is left to chance."""
    seed: int | None = None


class BadWish(UnbraidError):
    """What a model cannot do of a wish; `field` is what to change in it."""

    field: str

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message, field=field)


class Adapter(Protocol):
    """One family of models. Made for one vocabulary."""

    @property
    def format(self) -> Format:
        """What its models write."""
        ...

    @property
    def longest(self) -> float:
        """Seconds that a model takes at once."""
        ...

    @property
    def supports_language_detection(self) -> bool: ...

    @property
    def language(self) -> str | None:
        """The code of the language of a model that knows one only; None for others, and where it is not known."""
        ...

    @property
    def supports_timestamps(self) -> bool: ...

    @property
    def supports_translation(self) -> bool: ...

    def check(self, wish: TranscriptionOptions) -> None:
        """Raise `UnbraidError` for what the model cannot do."""
        ...

    def hearing(self, samples: Samples, wish: TranscriptionOptions, temperature: float) -> ListenRequest:
        """What to ask of the model for one chunk: the fused request, where the language is to be detected."""
        ...

    def language_of(self, token: int) -> str | None:
        """The language that a token stands for."""
        ...


_BUILT_IN = ("whisper.adapter", "moonshine.adapter", "engines.endpoint_adapter")
_adapters: dict[str, Callable[[Vocabulary], Adapter]] = {}


def register(name: str, make: Callable[[Vocabulary], Adapter]) -> None:
    """Make a family known. `make` gets the vocabulary of a model, and raises `UnbraidError` where it is none of the
    family's."""
    _adapters[name] = make


def adapter_for(vocabulary: Vocabulary | None, name: str | None = None) -> Adapter:
    """The adapter of a name, or the first whose vocabulary it is."""
    for module in _BUILT_IN:
        importlib.import_module(f"{__package__}.{module}")
    if vocabulary is None:
        from .engines.endpoint_adapter import EndpointAdapter

        return EndpointAdapter()
    if name is not None:
        if name not in _adapters:
            raise UnbraidError(f"no transcription adapter {name!r}: there are {', '.join(_adapters)}")
        return _adapters[name](vocabulary)
    problems: list[str] = []
    for make in _adapters.values():
        try:
            return make(vocabulary)
        except UnbraidError as error:
            problems.append(str(error))
    raise UnbraidError(f"no transcription adapter knows this vocabulary: {'; '.join(problems)}")


def known_adapters() -> Sequence[str]:
    return tuple(_adapters)
