"""Qwen3-ASR's adapter. The models write the language in words, and then the text:

    language English<asr_text>Ask not what your country can do for you.

`language None<asr_text>` says that nobody speaks. A given language is what the reply is made to begin with: then the
model writes the text alone. That is the makers' own way (`qwen-asr`), vLLM's and SGLang's. Their transcription
endpoints take the markup away, and the language with it; so the models are asked by chat, which leaves it.
"""

from __future__ import annotations

from ...core.grammar import Format, TranscriptMarkup
from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ..audio.decode import Samples
from ..languages import language_code
from ..options import TranscriptionOptions
from .chat import ChatRequest

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


class QwenAsrAdapter:
    """All of Qwen3-ASR."""

    format = QWEN3_ASR
    max_seconds = 60.0  # they take more, but several chunks are heard at once, and words appear sooner
    supports_language_detection = True
    supports_timestamps = False  # a model of its own aligns
    supports_translation = False
    language: str | None = None

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

    def request(self, samples: Samples, options: TranscriptionOptions, temperature: float) -> ChatRequest:
        begins = "" if options.language is None else _TAG.format(self._name(options.language))
        return ChatRequest(
            samples=samples,
            prompt=(),
            temperature=temperature,
            seed=options.seed,
            context=options.prompt.strip(),
            begins=begins,
        )

    def language_of(self, token: int) -> str | None:
        return None

    def _name(self, language: str) -> str:
        name = {language_code(name): name for name in LANGUAGE_NAMES}.get(language_code(language))
        if name is None:
            raise UnbraidError(f"language: Qwen3-ASR does not know {language!r}; it knows {', '.join(LANGUAGE_NAMES)}")
        return name
