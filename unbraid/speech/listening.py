"""The two protocols of speech models: a `Listener` runs a model, an `Adapter` knows how its family is asked.

A listener is `unbraid.engines.base.Engine` with sound in place of a prompt. Sound goes in; tokens come out, and then
one `ListenEnd`:

    adapter = adapter_for(listener.vocabulary)
    request = adapter.request(samples, TranscriptionOptions(language="en"), temperature=0.0)
    async for output in listener.listen(request):
        print(output)

    request   ListenRequest(samples=…, prompt=(50258,),           # <|startoftranscript|>
                            prefix=TokenSets(({50259}, {50359}, {50363})))  # <|en|> <|transcribe|> <|notimestamps|>
    output    Opening(ids=(50259, 50359, 50363), no_speech=0.01, logprobs=…)
              Piece(ids=(12320,), logprobs=…)                     # " Ask"
              Piece(ids=(406,), logprobs=…)                       # " not"
              Piece(ids=(50257,), logprobs=…)                     # <|endoftext|>
              ListenEnd(reason="stop", prompt_tokens=1, completion_tokens=6, no_speech=0.01)

What the output must begin with is a set of tokens for each place (`TokenSets`). Without a language in the options, the
first set has the tokens of all languages: the model detects the language in the request that transcribes. The parser of
`adapter.format` reads the output, markup included. A server that gives text yields `Piece(text=" Ask not")` instead,
and its listener has no vocabulary.

Listeners: `whisper.listener` and `moonshine` on ONNX Runtime in this process, and those in `engines`. `families` lists
the adapters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from ..constraints.printers.token_sets import TokenSets
from ..core.grammar import Format
from ..core.vocabulary import Vocabulary
from ..engines.base import Piece
from .audio.chunking import Spans
from .audio.decode import Samples
from .options import TranscriptionOptions

ANYTHING = TokenSets(())
EndReason = Literal["stop", "length", "loop"]
"""`loop`: the model repeated itself, and was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenRequest:
    """One chunk, and how to decode it."""

    samples: Samples = field(repr=False)
    """Mono, 16 kHz; at most as long as the model takes."""
    prompt: tuple[int, ...]
    """The tokens that the decoder is given before the output."""
    prefix: TokenSets = ANYTHING
    """What the output must begin with. A set of one token is forced; among several, the likeliest is chosen."""
    goes_on: bool = False
    """Whether the prefix ends with words that are certain already, which the output goes on from; only where the
    listener supports it (`goes_on_from_words`), and without timestamps."""
    timestamps: bool = False
    """Whether the output contains timestamps."""
    temperature: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    """None for as many as the model's context has room for."""
    words: bool = False
    """Whether `ListenEnd.times` is wanted; only where the listener supports it (`supports_word_times`)."""
    speech: Spans | None = None
    """Where somebody speaks, in seconds of the chunk; None if that is not known. Times of words lie there."""
    stretches: Spans = ()
    """Parts of the chunk, in seconds, of each of which `Opening.languages` is wanted; only where the listener supports
    it (`tells_languages`)."""
    languages: frozenset[int] = frozenset()
    """With `stretches`: the tokens of the languages that may be spoken there."""
    recording: object = None
    """Which recording the chunk is of. A listener that decodes one thing after the other lets recordings take turns;
    None is a recording of its own."""
    beams: int = 1
    """The width of the beam search; at most the listener's `max_beams`, and only at temperature 0."""


@dataclass(frozen=True, slots=True)
class Opening(Piece):
    """The first piece of a listener that knows the probability of silence from the first step on."""

    no_speech: float | None = None
    languages: tuple[Mapping[int, float], ...] = ()
    """With `ListenRequest.stretches`: the probability of each language's token, for each stretch."""


@dataclass(frozen=True, slots=True)
class ListenEnd:
    """The end of the output."""

    reason: EndReason
    prompt_tokens: int
    completion_tokens: int
    no_speech: float | None = None
    """The probability that nobody speaks, where the model gives it."""
    choices: Mapping[int, float] = field(default_factory=dict)
    """For the first set of the prefix with several tokens: the probability of each, among them."""
    times: tuple[float, ...] = ()
    """With `ListenRequest.words`: when each token of the output begins, in seconds of the chunk, and when the last one
    ends."""


@runtime_checkable
class TextVocabulary(Vocabulary, Protocol):
    """A vocabulary that can also encode text. A listener with one takes prompts from users."""

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text. Special tokens that are spelled in it are not recognised; none are added."""
        ...


class Listener(Protocol):
    """A speech model that can be asked.

    Optional abilities are attributes that a listener may leave out; read them with `supports_word_times`,
    `max_beams`, `family_of`, `goes_on_from_words` and `tells_languages` below.
    """

    @property
    def model(self) -> str:
        """The name of the model."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The model's tokens. A `TextVocabulary` where users may give a prompt; None where the pieces are text."""
        ...

    @property
    def parallel(self) -> int:
        """How many chunks of a recording to ask for at once."""
        ...

    def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece, then `ListenEnd`. Each piece has the logprobs of its tokens; the first may be an
        `Opening`. Closing the generator aborts the work."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...


def supports_word_times(listener: Listener) -> bool:
    """Whether a listener can time each token: its attribute `supports_word_times`."""
    return bool(getattr(listener, "supports_word_times", False))


def max_beams(listener: Listener) -> int:
    """The widest beam search of a listener: its attribute `max_beams`."""
    return int(getattr(listener, "max_beams", 1))


def family_of(listener: Listener) -> str | None:
    """The family of a listener's model, where the listener knows it: its attribute `family`."""
    name = getattr(listener, "family", None)
    return None if name is None else str(name)


def goes_on_from_words(listener: Listener) -> bool:
    """Whether a listener takes `ListenRequest.goes_on`: its attribute of that name."""
    return bool(getattr(listener, "goes_on_from_words", False))


def tells_languages(listener: Listener) -> bool:
    """Whether a listener takes `ListenRequest.stretches`: its attribute `tells_languages`."""
    return bool(getattr(listener, "tells_languages", False))


class Adapter(Protocol):
    """One family of models, for the vocabulary of one model. It does no work itself: the `Transcriber` asks it how to
    ask a listener. Subclass it, or write a class of this shape."""

    @property
    def format(self) -> Format:
        """What the models write."""
        ...

    @property
    def max_seconds(self) -> float:
        """The longest chunk that a model takes."""
        return 30.0

    @property
    def language(self) -> str | None:
        """The language code of a model for one language; None for other models, and where it is unknown."""
        return None

    @property
    def supports_language_detection(self) -> bool:
        return False

    @property
    def supports_timestamps(self) -> bool:
        return False

    @property
    def supports_translation(self) -> bool:
        return False

    def languages(self, options: TranscriptionOptions) -> Mapping[int, str]:
        """The languages among which the model detects: the code of each one's token. Empty where it has no tokens of
        languages."""
        return {}

    def check(self, options: TranscriptionOptions) -> None:
        """Raise `UnbraidError` for options that the model does not support."""
        ...

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> ListenRequest:
        """The request for one chunk. Where the language is to be detected, the same request does that too."""
        ...
