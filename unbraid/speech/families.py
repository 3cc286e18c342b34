"""The registry of model families: which adapter fits a listener.

All built-in families are listed here, and only here. `register` adds another one; `unbraid serve` and
`unbraid transcribe` then take its models. To add a family: write an adapter (see `adapters`) and a listener (see
`listening`), then list the adapter below.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from .adapters import Adapter
from .engines.endpoint_adapter import EndpointAdapter
from .moonshine.adapter import MoonshineAdapter
from .whisper.adapter import WhisperAdapter

MakeAdapter = Callable[[Vocabulary], Adapter]

_families: dict[str, MakeAdapter] = {
    "whisper": WhisperAdapter,
    "moonshine": MoonshineAdapter,
    "endpoint": EndpointAdapter,
}


def register(name: str, make: MakeAdapter) -> None:
    """Add a family. `make` gets the vocabulary of a model, and raises `UnbraidError` for one of another family."""
    _families[name] = make


def adapter_for(vocabulary: Vocabulary | None, name: str | None = None) -> Adapter:
    """The adapter for a model: of the family `name`, or of the first family that accepts the vocabulary.

    Without a vocabulary the model is behind a server that answers with text.
    """
    if vocabulary is None:
        return EndpointAdapter()
    if name is not None:
        if name not in _families:
            raise UnbraidError(f"there is no family of speech models {name!r}: there are {', '.join(_families)}")
        return _families[name](vocabulary)
    problems: list[str] = []
    for make in _families.values():
        try:
            return make(vocabulary)
        except UnbraidError as error:
            problems.append(str(error))
    raise UnbraidError(f"no family of speech models has this vocabulary: {'; '.join(problems)}")


def known_families() -> tuple[str, ...]:
    """The names of all families."""
    return tuple(_families)
