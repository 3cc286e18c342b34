"""The grammar of a format: small, immutable values that say what a model may write.

There is no behaviour here. The parser (`compiler`, `machine`), the renderer (`render`) and the constraints are derived
from these values.

A marker is written as the vendor's chat template writes it, with its whitespace: `"\\n<tool_call>\\n"`. Whitespace
at its ends may be missing; if the model writes it, it belongs to the marker. With a tokenizer, a tag in a marker
(`<…>`, `[…]`) that is one of its tokens is that token and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from .fast_import import frozen


@frozen
class Between:
    """Text of a strand of its own, from one marker to another."""

    open: str
    close: str
    also: tuple[tuple[str, str], ...] = ()
    """Other spellings of both that models use; the renderer does not."""
    label: str = ""
    """The end of `open`, where it only names the strand: `thought\\n`. Models forget it, which is reported."""


@frozen
class SpeechMarkup:
    """Spoken text with audio codes strewn into it. The codes are out of band: a marker or a character of the text may
    have codes between its parts. With a tokenizer the codes, like `open` and `close`, are tokens and nothing else."""

    open: str = ""
    close: str = ""
    """Without `open`, nothing in the output says that the model speaks: all text of the turn is spoken. For a turn that
    is not, there is `Format.silent`."""
    code: str = ""
    """How code N is spelled, with `{}` for N. Without it no code stands in the text: it is known by its id
    (`first_token`), or comes from a head of its own beside the tokens (`Parser.feed_codes`)."""
    codes: int = 0
    """Codes run from 0 up to, not including, this. Where a frame comes from a head of its own, these are the codes of
    its first codebook, and a frame that begins with a higher one holds no audio."""
    first_token: int | None = None
    """The id of code 0, where the tokenizer has no text for the codes."""
    codebooks: int = 1
    """How many codes make a frame, one of each codebook. Codes with a spelling are numbered through all codebooks."""
    around: tuple[str, str] = ("", "")
    """What stands around each run of codes. It is out of band too, and may be missing."""
    padding: tuple[str, ...] = ()
    """What fills up where the text or the audio is the shorter of the two. It means nothing."""
    ratio: tuple[int, int] | None = None
    """How many tokens of text, and then of audio, the model was trained to write in turn. Models drift: the parser and
    the constraint do not depend on it."""
    spoken: bool = True
    """False: what no marker opens is not spoken, and its text is content."""

    @property
    def implied(self) -> bool:
        """Whether the turn is spoken from its beginning, without a marker that says so."""
        return self.spoken and not self.open

    @property
    def out_of_band(self) -> tuple[str, ...]:
        """What is markup wherever it stands, save codes."""
        return tuple(text for text in (*self.around, *self.padding) if text)


@frozen
class TranscriptMarkup:
    """What was heard. Tags in it tell the language and the times; they are out of band, as audio codes are. With a
    tokenizer they are tokens and nothing else, and the times are read off their ids: few tokenizers spell them."""

    languages: tuple[str, ...]
    """The codes that there may be, or the names; with a tokenizer, those that it has."""
    times: int
    """How many times there are, from 0 on, each `step` seconds after the one before; 0 if the model writes none."""
    step: float = 0.02
    tag: str = "<|{}|>"
    """How a tag is spelled."""
    tasks: tuple[str, ...] = ("transcribe", "translate")
    timeless: str = "notimestamps"
    """Says that no times come. As a token, it stands right before that of the first time."""
    ignored: tuple[str, ...] = ()
    """Further tags that mean nothing."""

    def time(self, number: int) -> str:
        """How a time is spelled."""
        return self.tag.format(f"{number * self.step:.2f}")


Escapes = tuple[tuple[str, str], ...]
"""Replacements in the value of an attribute, in this order: text, and its escape."""


def escaped(text: str, escapes: Escapes) -> str:
    """The text as it stands in the attribute."""
    for plain, escape in escapes:
        text = text.replace(plain, escape)
    return text


def unescaped(spelled: str, escapes: Escapes) -> str:
    """The text as it is, from the attribute."""
    for plain, escape in reversed(escapes):
        spelled = spelled.replace(escape, plain)
    return spelled


@frozen
class Name:
    """The name of the function."""

    namespaced: bool = False
    """Accept `namespace.name`. `name.name` is silent; any other namespace is reported as REPAIRED."""
    escapes: Escapes = ()
    """Replacements in the name."""


@frozen
class CallId:
    """The id that the model gave the call."""


@frozen
class NameInId:
    """The id that the model gives the call, with the function's name in it."""

    before: str
    after: str
    """The text around the name. The number of the call comes last. Models may leave either out."""


@frozen
class Ordinal:
    """The number of the call, which says nothing."""

    first: int = 0


class Notation:
    """A way to write the arguments of a call, or the whole call. The nodes are in `core/notations`."""

    __slots__ = ()

    @property
    def first_word(self) -> str:
        """What arguments that are not empty begin with, or ""."""
        return ""


@frozen
class Maybe:
    """A marker, and what comes with it, that may be missing. `written` says whether the renderer writes it."""

    marker: str
    then: tuple[CallPart, ...] = ()
    written: bool = True
    due: bool = False
    """Whether it should be there: models leave it out by mistake, and that is reported."""


@frozen
class Instead:
    """A marker in place of the rest of the call, and what comes after it there; nothing, where the call has no
    arguments. The renderer does not write it."""

    marker: str
    then: tuple[CallPart, ...] = ()


CallPart = str | Name | CallId | NameInId | Ordinal | Notation | Maybe | Instead
"""A part of a call; a `str` is literal text."""


@frozen
class Call:
    """One call: its parts in order, whitespace between them as it comes."""

    parts: tuple[CallPart, ...]


@frozen
class CallList:
    """Calls as a list. Without a separator they follow each other; without `close` the list ends where no other call
    comes."""

    call: Call
    open: str = ""
    separator: str = ""
    close: str = ""


@frozen
class Either:
    """`first` where the text begins with the words of `opening`, otherwise `second`. The renderer writes `second`."""

    opening: str
    first: Call | CallList
    second: CallsBody


CallsBody = Call | CallList | Either


@frozen
class Calls:
    """Where calls stand: after `open`, up to `close` where there is one."""

    open: str
    body: CallsBody
    close: str = ""
    close_written: bool = True
    """False: models may leave `close` out, and the renderer does."""
    bare: bool = False
    """There is no marker: `open` is what the body itself begins with, and may as well begin something else."""
    also: tuple[str, ...] = ()
    """Other markers that models open it with."""
    also_close: tuple[str, ...] = ()
    """Other markers that models close it with."""
    echoed: bool = False
    """Models write the list once more after the calls, without its marker. It is left out."""

    @property
    def closes(self) -> tuple[str, ...]:
        """All that closes it."""
        return (self.close, *self.also_close) if self.close else ()


@frozen
class Headers:
    """The output is messages, each with a header that says what it is. Models write headers in many ways; so they are
    read up to their end, and then told by patterns. How headers are written is in the format's other fields, whose
    opening markers are whole headers. `unbraid.register` checks that the patterns recognise these."""

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    """What headers begin and end with. Either may begin a header."""
    ends: tuple[str, ...]
    """What ends a message."""
    reasoning: str
    content: str
    calls: str
    """Patterns that are looked for in a header, ends included. That of calls comes first, and may have a group `name`
    for the function's."""
    inside: str = r"(?!\s*(?:\S+\s+){5})(?:[^<`.,:;!?]|<[^<>\s]*(?:>|\Z)|[.,:;!?](?!\s))*"
    """A pattern for all that may stand between `opens` and `closes`: a few words and tags, no sentence."""
    begins: tuple[str, ...] = ()
    """What may come where the prompt has begun a header, besides `opens` and `closes`; () for anything."""


@frozen
class Citations:
    """Tags in the text, around what they give the sources of. They are markup; what stands between them is text."""

    tags: tuple[str, ...]
    """Tags that name no source."""
    opens: tuple[str, ...]
    """What the other tags begin with."""
    close: str
    """What the other tags end with."""
    inside: str
    """A pattern for the text between `opens` and `close`, and for every beginning of it."""


@frozen
class CallIds:
    """The look of ids for calls that the model gave none."""

    prefix: str = "call_"
    length: int = 24


@frozen
class Format:
    """What one model family writes. Everything else is derived from this value."""

    name: str
    reasoning: Between | None = None
    answer: Between | None = None
    """Markers around the content that mean nothing. Models may leave them out."""
    tools: Calls | None = None
    other_tools: tuple[Calls, ...] = ()
    """Other ways in which models of the family write calls; the renderer does not. (Where there are headers, they are
    read by their patterns, and these are for the constraint.)"""
    headers: Headers | None = None
    speech: SpeechMarkup | None = None
    transcript: TranscriptMarkup | None = None
    reasoning_in_content: bool = False
    """The reasoning's place is the content, with its markers; with the opening one too, where the prompt wrote it."""
    calls_in_reasoning: bool = True
    """Whether a call inside the reasoning is a call. False for models that only draft calls there."""
    reasoning_again: bool = False
    """Whether reasoning may open again once the answer has begun: then at the beginning of a line. False where the
    template writes it before the answer only: what opens it is text in an answer. (After a call, and in a message with
    a header of its own, it may always open.)"""
    spelled_markers: bool = False
    """The model writes markers in several ordinary tokens too, although there are single ones. So they are found in
    the text that the tokens spell. Otherwise a marker that is one token is that token and nothing else."""
    ignored: tuple[str, ...] = ()
    """Markers in the content that say nothing."""
    citations: Citations | None = None
    """Tags in the content and in the reasoning that say where it is from."""
    ends: tuple[str, ...] = ()
    """Tokens that end the turn. Only as tokens: spelled out as text they are text."""
    optional_end: str = ""
    """What all markers end with, and models leave out: `<|sep|>`."""
    prompt: str = ""
    """The prompt's end that is assumed when the caller gives none (`<think>\\n` for models that always reason)."""
    call_ids: CallIds = CallIds()
    versions: tuple[tuple[int, Format], ...] = ()
    """Other grammars of the same family, each from that tokenizer version on."""

    def for_version(self, version: int | None) -> Format:
        """The grammar for a tokenizer's version; this one where the version is not known."""
        chosen = self
        if version is not None:
            for since, format in self.versions:
                if version >= since:
                    chosen = format
        return chosen

    def with_calls_in_reasoning(self, admitted: bool | None) -> Format:
        """The same format, where a call inside the reasoning is one, or is text; None for what the format says."""
        if admitted is None or admitted == self.calls_in_reasoning:
            return self
        versions = tuple((since, format.with_calls_in_reasoning(admitted)) for since, format in self.versions)
        return replace(self, calls_in_reasoning=admitted, versions=versions)

    def silent(self) -> Format:
        """The same format for a turn that is not spoken: its text is content, unless a marker opens speech. Codes that
        come all the same are speech."""
        if self.speech is None or not self.speech.implied:
            return self
        versions = tuple((since, format.silent()) for since, format in self.versions)
        return replace(self, speech=replace(self.speech, spoken=False), versions=versions)
