"""Adapters of models that are on servers and give text: endpoints of any kind, and Qwen3-ASR. Nothing here needs HTTP.

Qwen3-ASR writes the language in words, and then the text:

    language English<asr_text>Ask not what your country can do for you.

`language None<asr_text>` says that nobody speaks. A reply that is made to begin with a language goes on with the text.
That is the makers' own way (`qwen-asr`), vLLM's and SGLang's. Their transcription endpoints remove the markup, and the
language with it; so the models are asked by chat, which leaves both.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.grammar import Format, TranscriptMarkup
from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...formats import find
from ..audio.decode import Samples
from ..languages import known_code, language_code
from ..listening import Adapter, ListenRequest
from ..options import Task, TranscriptionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest(ListenRequest):
    """A request to a server that takes and gives text: there is no prompt of tokens."""

    prompt: tuple[int, ...] = ()
    context: str = ""
    """The user's prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRequest(TextRequest):
    """A request to an endpoint."""

    task: Task = "transcribe"
    language: str | None = None
    """A code, or the text itself if there is none; None to detect it."""


class EndpointAdapter(Adapter):
    """All endpoints. What one does not support, the server itself refuses. The server also detects the language."""

    format = find("whisper")
    supports_timestamps = True
    supports_translation = True

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        if vocabulary is not None:
            raise UnbraidError("an endpoint gives text: it has no vocabulary")

    def check(self, options: TranscriptionOptions) -> None:
        if options.languages:
            raise UnbraidError(
                "languages: the server that transcribes takes one language or none, not several candidates"
            )

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> EndpointRequest:
        return EndpointRequest(
            samples=samples,
            timestamps=options.timestamps,
            temperature=temperature,
            seed=options.seed,
            task=options.task,
            language=None if options.language is None else known_code(options.language) or options.language,
            context=options.context,
        )


_NAMES = """
Arabic Cantonese Chinese Czech Danish Dutch English Filipino Finnish French German Greek Hindi Hungarian Indonesian
Italian Japanese Korean Macedonian Malay Persian Polish Portuguese Romanian Russian Spanish Swedish Thai Turkish
Vietnamese
"""
LANGUAGE_NAMES = tuple(_NAMES.split())

_TAG = "language {}<asr_text>"
QWEN3_ASR = Format(
    "qwen3-asr",
    transcript=TranscriptMarkup(LANGUAGE_NAMES, times=0, tag=_TAG, tasks=(), timeless="None"),
    ends=("<|im_end|>", "<|endoftext|>"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechChatRequest(TextRequest):
    """A request to a model that chats."""

    begins: str = ""
    """What the reply begins with, as if the model had written it."""


class QwenAsrAdapter(Adapter):
    """All of Qwen3-ASR. The models give no times: another model aligns words."""

    format = QWEN3_ASR
    max_seconds = 60.0  # they take more, but several chunks are heard at once, and words appear sooner
    supports_language_detection = True

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        if vocabulary is not None:
            raise UnbraidError("Qwen3-ASR is read as text: its markup is no token")

    def check(self, options: TranscriptionOptions) -> None:
        if options.task == "translate":
            raise UnbraidError("Qwen3-ASR cannot translate: transcribe, or take a multilingual Whisper")
        if options.languages:
            raise UnbraidError("languages: Qwen3-ASR takes one language or none, not several candidates")
        if options.language is not None:
            self._name(options.language)

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> SpeechChatRequest:
        begins = "" if options.language is None else _TAG.format(self._name(options.language))
        return SpeechChatRequest(
            samples=samples,
            temperature=temperature,
            seed=options.seed,
            context=options.context,
            begins=begins,
        )

    def _name(self, language: str) -> str:
        name = {language_code(name): name for name in LANGUAGE_NAMES}.get(language_code(language))
        if name is None:
            raise UnbraidError(f"language: Qwen3-ASR does not know {language!r}; it knows {', '.join(LANGUAGE_NAMES)}")
        return name
