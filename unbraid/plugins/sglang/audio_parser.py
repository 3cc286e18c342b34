"""The audio parser: speech taken out of a model's token ids, with the interface that forks of SGLang and vLLM use.

SGLang itself has no such parser. Token ids in, token ids out: the spoken text, the audio, and the rest for the parsers
of reasoning and calls. A call or reasoning inside speech belongs to the rest. The core's parser says what each
character is; `_Stream` traces the characters back to their tokens. SGLang is not imported here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple, cast

from ...core.compiler.compiler import Program, compile_format
from ...core.compiler.prompt_end import opened_at_end, with_speech
from ...core.events import Event, Markup, SpeechAudio, SpeechText, audio_text
from ...core.grammar import Format
from ...core.vocabulary import Vocabulary, is_whole
from ...errors import UnbraidError
from ...formats import find
from ...parsing import Parser
from ...tokens import vocabulary
from ...tokens.retokenize import spell
from .text_streams import RawOrder

_UNREADABLE = "\ufffd"
_Kind = Literal["text", "markup", "other", "nothing"]


class TtsContent(NamedTuple):
    """Token ids by what they are. Markers of speech, padding and the ends of turns are in none of them."""

    text: list[int]
    """The spoken text."""
    audio: list[int]
    """The audio codes."""
    other: list[int]
    """Everything else, for the parsers of reasoning and calls."""


class AudioParser:
    """Takes the speech out of the tokens of one response after another.

    tokenizer: the model's. A stream has state: `finish` returns what was held back at its end, and `reset` discards a
        stream that was aborted.
    """

    def __init__(self, tokenizer: object, format: str | Format = "step-audio-2") -> None:
        self._format = format if isinstance(format, Format) else find(format)
        if self._format.speech is None:
            raise UnbraidError(f"the format {self._format.name!r} has no speech: there is no audio to parse")
        self._program = compile_format(self._format, _TokenByToken(_vocabulary(tokenizer)))
        # The program is cached, and with it the first vocabulary for this tokenizer: use that one.
        self._vocabulary = cast(_TokenByToken, self._program.vocabulary)
        self.audio_start_token = self._format.speech.open.strip()
        self.audio_end_token = self._format.speech.close.strip()
        self._stream: _Stream | None = None

    def is_tts_output(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt ends inside speech, so that the output begins with speech."""
        return "speech" in with_speech(self._program, opened_at_end(self._program, prompt_ids).strands)

    def extract_tts_content_nonstreaming(
        self, output_token_ids: Iterable[int], is_tts_ta4_output: bool = False
    ) -> TtsContent:
        """The speech in a whole output.

        is_tts_ta4_output: the answer of `is_tts_output` for the prompt: the output begins inside speech. If False,
            speech begins with a marker in the output.
        """
        stream = self._new_stream(is_tts_ta4_output)
        parts = stream.feed(output_token_ids), stream.finish()
        return TtsContent(*(first + last for first, last in zip(*parts, strict=True)))

    def extract_tts_content_streaming(
        self, new_token_ids: Iterable[int], is_tts_ta4_output: bool = False
    ) -> TtsContent:
        """The speech in the next tokens of a stream. What may still become a marker is held back."""
        if self._stream is None:
            self._stream = self._new_stream(is_tts_ta4_output)
        return self._stream.feed(new_token_ids)

    def finish(self) -> TtsContent:
        """What was held back, at the end of the stream. The next one may begin."""
        stream, self._stream = self._stream, None
        return TtsContent([], [], []) if stream is None else stream.finish()

    def reset(self) -> None:
        """Discard the stream: the next tokens belong to another one."""
        self._stream = None

    _reset_streaming_state = reset  # the name in the forks

    def tts_content(self, content: TtsContent) -> dict[str, str]:
        """The `tts_content` of a chat completion's message."""
        spoken = b"".join(self._vocabulary.inner.token_bytes(token) or b"" for token in content.text)
        codes = [self._program.codes[token][0] for token in content.audio]
        audio = audio_text([code for code in codes if isinstance(code, int)])
        return {"tts_text": spoken.decode("utf-8", "replace"), "tts_audio": audio}

    def _new_stream(self, in_speech: bool) -> _Stream:
        format = self._format if in_speech else self._format.silent()
        return _Stream(format, self._program, self.audio_start_token if in_speech else "")


class StepAudio2AudioParser(AudioParser):
    """The parser for Step-Audio 2, under its name in forks of SGLang."""

    def __init__(self, tokenizer: object) -> None:
        super().__init__(tokenizer)


class AudioParserManager:
    """Audio parsers by name, for each format that has speech."""

    @classmethod
    def create_parser(cls, name: str, tokenizer: object) -> AudioParser:
        """A parser for the model whose format has this name (`step_audio_2`)."""
        return AudioParser(tokenizer, name)

    @classmethod
    def get_parser(cls, name: str) -> Callable[[object], AudioParser]:
        """A function that makes parsers of that name from a tokenizer."""
        return partial(AudioParser, format=find(name))


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
    """One response: the core's parser says what each character is, and so what its token is."""

    def __init__(self, format: Format, program: Program, prompt: str) -> None:
        assert format.speech is not None
        speech = format.speech
        self._vocabulary = vocabulary = cast(_TokenByToken, program.vocabulary)
        self._parser = Parser(format, tokenizer=vocabulary, prompt=prompt, keep_message=False, markup=True)
        self._unspelled = {token for token, (_, text) in program.codes.items() if not text}
        dropped = (speech.open.strip(), speech.close.strip(), *speech.out_of_band, *format.ends)
        self._dropped = {vocabulary.token_id(text) for text in dropped}
        self._audio = {code: token for token, (code, _) in program.codes.items()}
        self._size = 0
        self._tokens: deque[_Token] = deque()
        """Tokens of which not every character is known yet."""
        self._order = RawOrder()

    def feed(self, ids: Iterable[int]) -> TtsContent:
        ids = list(ids)
        for token in ids:
            if token in self._unspelled:
                continue
            self._tokens.append(_Token(token, self._vocabulary.text(token), self._size))
            self._size = self._tokens[-1].end
        return self._sort(self._parser.feed_tokens(ids))

    def finish(self) -> TtsContent:
        return self._sort(self._parser.finish())

    def _sort(self, events: list[Event]) -> TtsContent:
        content = TtsContent([], [], [])
        for event in events:
            if isinstance(event, SpeechAudio):  # at once, even if text before it is held back
                content.audio.extend(self._audio[code] for code in event.codes)
        for event in self._order.add(events):
            kind = _kind(event)
            while self._tokens and self._tokens[0].start < event.end:
                token = self._tokens[0]
                token.parts.append((kind, token.text[max(event.start - token.start, 0) : event.end - token.start]))
                if token.end > event.end:
                    break
                self._place(self._tokens.popleft(), content)
        return content

    def _place(self, token: _Token, content: TtsContent) -> None:
        """Put a token where it belongs. One that is partly spoken is replaced by tokens that are not."""
        if token.parts[0][0] == "nothing" or (token.parts[0][0] == "markup" and token.id in self._dropped):
            return
        places = [
            (content.text if spoken else content.other, "".join(text for _, text in parts))
            for spoken, parts in groupby(token.parts, lambda part: part[0] == "text")
        ]
        spelled = [self._spell(text) for _, text in places] if len(places) > 1 else [(token.id,)]
        if not all(spelled):
            spelled = [(token.id,), *([()] * (len(places) - 1))]
        for (place, _), ids in zip(places, spelled, strict=True):
            place.extend(ids)

    def _spell(self, text: str) -> tuple[int, ...]:
        """`text` in tokens; empty if the vocabulary cannot spell it."""
        inner = self._vocabulary.inner
        return (spell(inner, text.encode()) or ()) if is_whole(inner) else ()


def _kind(event: Event) -> _Kind:
    match event:
        case SpeechText():
            return "text"
        case SpeechAudio():
            return "nothing"  # its tokens are placed already
        case Markup():
            return "markup"
    return "other"


class _TokenByToken:
    """A vocabulary in which each token is whole characters, so that each character belongs to one token. Characters
    that span tokens become unreadable, but no marker does."""

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
    """The vocabulary of a tokenizer that can only list its tokens."""

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
        # The list often has the tokenizer's spelling of bytes, not the characters.
        return None if text is None else (text if self._decode is None else self._decode([token])).encode()


def _vocabulary(tokenizer: object) -> Vocabulary:
    try:
        return vocabulary(tokenizer)
    except TypeError:
        if isinstance(tokenizer, type) or not callable(getattr(tokenizer, "get_vocab", None)):
            raise
        return _Listed(tokenizer)
