"""Speech taken out of a model's tokens, as forks of SGLang and vLLM name it: SGLang itself has no parser for it.

Token ids in, token ids out: those of the spoken text, those of the audio, and the others, which are for the parsers of
reasoning and calls. A call or reasoning in the midst of speech is among the others. Nothing of SGLang is needed here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple, cast

import unbraid
from unbraid.core.events import Event, Markup, SpeechAudio, SpeechText
from unbraid.core.grammar import Format
from unbraid.core.machine.compiler import compile_format
from unbraid.core.machine.prompt_end import opened_at_end
from unbraid.core.vocabulary import Vocabulary
from unbraid.engines.retokenize import is_whole, spell
from unbraid.errors import UnbraidError
from unbraid.tokens import vocabulary

from .streams import RawOrder

_UNREADABLE = "\ufffd"
_Kind = Literal["text", "markup", "other", "nothing"]


class TtsContent(NamedTuple):
    """What is in some tokens, as ids. The markers of speech, its padding and the ends of turns are in none of these."""

    text: list[int]
    """What is spoken."""
    audio: list[int]
    """The audio of it."""
    other: list[int]
    """All else, for the parsers of reasoning and of calls."""


class AudioParser:
    """Takes the speech out of the tokens of a response, and of the next one.

    `tokenizer` is that of the model. A stream has a state: `finish` gives what was held back at its end, and `reset`
    forgets one that was broken off.
    """

    def __init__(self, tokenizer: object, format: str | Format = "step-audio-2") -> None:
        self._format = format if isinstance(format, Format) else unbraid.find(format)
        if self._format.speech is None:
            raise UnbraidError(f"the format {self._format.name!r} has no speech: there is no audio to parse")
        self._program = compile_format(self._format, _TokenByToken(_vocabulary(tokenizer)))
        # Not the one just made, but the first for this tokenizer, on which hangs what was worked out for it.
        self._vocabulary = cast(_TokenByToken, self._program.vocabulary)
        self.audio_start_token = self._format.speech.open.strip()
        self.audio_end_token = self._format.speech.close.strip()
        self._stream: _Stream | None = None

    def is_tts_output(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt leaves the model inside of speech, so that its output begins with what is spoken."""
        return "speech" in opened_at_end(self._program, prompt_ids).strands

    def extract_tts_content_nonstreaming(
        self, output_token_ids: Iterable[int], is_tts_ta4_output: bool = False
    ) -> TtsContent:
        """The speech in a whole output.

        is_tts_ta4_output: what `is_tts_output` says of the prompt: text and audio come from the first token on. Without
            it, speech is what the output itself opens with a marker.
        """
        stream = self._new_stream(is_tts_ta4_output)
        parts = stream.feed(output_token_ids), stream.finish()
        return TtsContent(*(first + last for first, last in zip(*parts, strict=True)))

    def extract_tts_content_streaming(
        self, new_token_ids: Iterable[int], is_tts_ta4_output: bool = False
    ) -> TtsContent:
        """The same for the next tokens of a stream. What may still become a marker comes with a later call."""
        if self._stream is None:
            self._stream = self._new_stream(is_tts_ta4_output)
        return self._stream.feed(new_token_ids)

    def finish(self) -> TtsContent:
        """What was held back. The stream is over, and the next one may begin."""
        stream, self._stream = self._stream, None
        return TtsContent([], [], []) if stream is None else stream.finish()

    def reset(self) -> None:
        """Forget the stream: the next tokens are those of another one."""
        self._stream = None

    _reset_streaming_state = reset  # as the forks call it

    def tts_content(self, found: TtsContent) -> dict[str, str]:
        """The `tts_content` of a chat completion's message."""
        spoken = b"".join(self._vocabulary.inner.token_bytes(token) or b"" for token in found.text)
        audio = "".join(map(self._vocabulary.text, found.audio))
        return {"tts_text": spoken.decode("utf-8", "replace"), "tts_audio": audio}

    def _new_stream(self, in_speech: bool) -> _Stream:
        return _Stream(self._format, self._vocabulary, self.audio_start_token if in_speech else "")


class StepAudio2AudioParser(AudioParser):
    """The parser for Step-Audio 2, under the name that it has in forks of SGLang."""

    def __init__(self, tokenizer: object) -> None:
        super().__init__(tokenizer)


class AudioParserManager:
    """Audio parsers by name: there is one for each format that has speech."""

    @classmethod
    def create_parser(cls, name: str, tokenizer: object) -> AudioParser:
        """A parser for the model whose format has this name (`step_audio_2`)."""
        return AudioParser(tokenizer, name)

    @classmethod
    def get_parser(cls, name: str) -> Callable[[object], AudioParser]:
        """What makes parsers of that name, given a tokenizer."""
        return partial(AudioParser, format=unbraid.find(name))


@dataclass(slots=True)
class _Token:
    id: int
    text: str
    start: int
    parts: list[tuple[_Kind, str]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class _Stream:
    """One response. The core's parser says what each character is, and so what the tokens are that it stands in."""

    def __init__(self, format: Format, vocabulary: _TokenByToken, prompt: str) -> None:
        assert format.speech is not None
        speech = format.speech
        self._parser = unbraid.parser(format, tokenizer=vocabulary, prompt=prompt, keep_message=False, markup=True)
        self._vocabulary = vocabulary
        self._code = speech.code
        dropped = (speech.open.strip(), speech.close.strip(), *speech.padding, *format.ends)
        self._dropped = {vocabulary.token_id(text) for text in dropped}
        self._size = 0
        self._tokens: deque[_Token] = deque()
        """Those of which not every character is known."""
        self._order = RawOrder()

    def feed(self, ids: Iterable[int]) -> TtsContent:
        ids = list(ids)
        for token in ids:
            self._tokens.append(_Token(token, self._vocabulary.text(token), self._size))
            self._size = self._tokens[-1].end
        return self._sort(self._parser.feed_tokens(ids))

    def finish(self) -> TtsContent:
        return self._sort(self._parser.finish())

    def _sort(self, events: list[Event]) -> TtsContent:
        found = TtsContent([], [], [])
        for event in events:
            if isinstance(event, SpeechAudio):  # at once: that text before it is held back does not concern it
                tokens = [self._vocabulary.token_id(self._code.format(code)) for code in event.codes]
                found.audio.extend(token for token in tokens if token is not None)
        for event in self._order.add(events):
            kind = _kind(event)
            while self._tokens and self._tokens[0].start < event.end:
                token = self._tokens[0]
                token.parts.append((kind, token.text[max(event.start - token.start, 0) : event.end - token.start]))
                if token.end > event.end:
                    break
                self._place(self._tokens.popleft(), found)
        return found

    def _place(self, token: _Token, found: TtsContent) -> None:
        """Put a token where it belongs. One that is partly spoken and partly not is spelled in others."""
        if token.parts[0][0] == "nothing" or (token.parts[0][0] == "markup" and token.id in self._dropped):
            return
        places = [
            (found.text if spoken else found.other, "".join(text for _, text in parts))
            for spoken, parts in groupby(token.parts, lambda part: part[0] == "text")
        ]
        spelled = [self._spell(text) for _, text in places] if len(places) > 1 else [(token.id,)]
        if not all(spelled):
            spelled = [(token.id,), *([()] * (len(places) - 1))]
        for (place, _), ids in zip(places, spelled, strict=True):
            place.extend(ids)

    def _spell(self, text: str) -> tuple[int, ...]:
        """`text` in tokens; none where the vocabulary has none, or its tokens cannot be gone through."""
        inner = self._vocabulary.inner
        return (spell(inner, text.encode()) or ()) if is_whole(inner) else ()


def _kind(event: Event) -> _Kind:
    match event:
        case SpeechText():
            return "text"
        case SpeechAudio():
            return "nothing"  # its tokens have been placed
        case Markup():
            return "markup"
    return "other"


class _TokenByToken:
    """A vocabulary in which each token is whole characters, so that each character is of one token. What is cut over
    several tokens is unreadable so, but no marker is."""

    version: int | None
    dummy_prefix = False

    def __init__(self, inner: Vocabulary) -> None:
        self.inner = inner
        self.version = inner.version
        self.token_id = inner.token_id

    def text(self, token: int) -> str:
        data = self.inner.token_bytes(token)
        try:
            return (data or b"").decode() or _UNREADABLE
        except UnicodeDecodeError:
            return "".join(chr(byte) if byte < 0x80 else _UNREADABLE for byte in data or b"")

    def token_bytes(self, token: int) -> bytes:
        return self.text(token).encode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TokenByToken) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash((_TokenByToken, self.inner))


class _Listed:
    """The vocabulary of a tokenizer of which nothing more is known than that it lists its tokens."""

    version: int | None = None
    dummy_prefix = False

    def __init__(self, tokenizer: Any) -> None:
        ids: dict[str, int] = tokenizer.get_vocab()
        self._ids = ids
        self._texts = {token: text for text, token in ids.items()}
        self._decode: Callable[[list[int]], str] | None = getattr(tokenizer, "decode", None)

    def token_id(self, text: str) -> int | None:
        return self._ids.get(text)

    def token_bytes(self, token: int) -> bytes | None:
        text = self._texts.get(token)
        # Listed are often not the characters of a token, but how the tokenizer writes their bytes.
        return None if text is None else (text if self._decode is None else self._decode([token])).encode()


def _vocabulary(tokenizer: object) -> Vocabulary:
    try:
        return vocabulary(tokenizer)
    except TypeError:
        if isinstance(tokenizer, type) or not callable(getattr(tokenizer, "get_vocab", None)):
            raise
        return _Listed(tokenizer)
