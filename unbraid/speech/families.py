"""The registry of model families: which adapter fits a listener, and what loads a family's models.

All built-in families are listed here, and only here. `register` adds another one; `unbraid serve` and
`unbraid transcribe` then take its models, as `--model FAMILY:MODEL`. A package registers its families with an entry
point in the group `unbraid.speech_families`: a function without arguments that calls `register`. It is called when the
first model is looked for.

To add a family: write an adapter (see `adapters`) and a listener (see `listening`), then list the adapter below.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from .engines.adapters import EndpointAdapter, QwenAsrAdapter
from .listening import Adapter, Listener
from .moonshine import MoonshineAdapter
from .onnx import Device
from .whisper.adapter import WhisperAdapter

_log = logging.getLogger(__name__)

GROUP = "unbraid.speech_families"
"""The group of entry points."""

MakeAdapter = Callable[[Vocabulary | None], Adapter]
Load = Callable[[str, int | None, Device], Listener]
"""Loads a model in this process, by what `--model` says after the family's name (or nothing, for the usual one), the
number of threads, and where to compute."""


@dataclass(frozen=True)
class Family:
    """A family of models."""

    name: str
    adapter: MakeAdapter
    load: Load | None = None
    """None if its models run elsewhere."""
    chats: bool = False
    """Whether its models listen behind `/v1/chat/completions` (`engines.chat`)."""


def _load_whisper(model: str, threads: int | None, device: Device) -> Listener:
    from .whisper.files import DEFAULT_WHISPER
    from .whisper.listener import WhisperEngine

    return WhisperEngine(model or DEFAULT_WHISPER, threads=threads, device=device)


def _load_moonshine(model: str, threads: int | None, device: Device) -> Listener:
    from .moonshine import DEFAULT_MOONSHINE, MoonshineEngine

    return MoonshineEngine(model or DEFAULT_MOONSHINE, threads=threads, device=device)


_families: dict[str, Family] = {
    family.name: family
    for family in (
        Family("whisper", WhisperAdapter, _load_whisper),
        Family("moonshine", MoonshineAdapter, _load_moonshine),
        Family("endpoint", EndpointAdapter),
        Family("qwen3-asr", QwenAsrAdapter, chats=True),
    )
}


def register(name: str, make: MakeAdapter, *, load: Load | None = None, chats: bool = False) -> None:
    """Add a family. `make` gets the vocabulary of a model, or None where there is text alone, and raises
    `UnbraidError` for one of another family. `load` and `chats`: see `Family`."""
    if not name or ":" in name:
        raise UnbraidError(f"a family of speech models needs a name without a colon, not {name!r}")
    _families[name] = Family(name, make, load, chats)


def adapter_for(vocabulary: Vocabulary | None, name: str | None = None) -> Adapter:
    """The adapter for a model: of the family `name`, or of the first family that accepts the vocabulary.

    Without either, the model is behind a server that answers with plain text.
    """
    if name is not None:
        return family(name).adapter(vocabulary)
    if vocabulary is None:
        return EndpointAdapter()
    problems: list[str] = []
    for each in known_families().values():
        try:
            return each.adapter(vocabulary)
        except UnbraidError as error:
            problems.append(str(error))
    raise UnbraidError(f"no family of speech models has this vocabulary: {'; '.join(problems)}")


def family(name: str) -> Family:
    """The family of that name. Raises `UnbraidError` where there is none."""
    families = known_families()
    if name not in families:
        raise UnbraidError(f"there is no family of speech models {name!r}: there are {', '.join(families)}")
    return families[name]


def known_families() -> dict[str, Family]:
    """All families, by their names; with those of other packages."""
    _load_plugins()
    return _families


@cache
def _load_plugins() -> None:
    """Call what other packages have for us, once. One that fails is reported, and left out."""
    for point in entry_points(group=GROUP):
        try:
            point.load()()
        except Exception as error:
            where = "" if point.dist is None else f" of {point.dist.name}"
            _log.warning("the family of speech models %r%s cannot be loaded: %s", point.name, where, error)
