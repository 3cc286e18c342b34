"""What a model writes, as text and as token ids, for every format: the laws."""

from __future__ import annotations

import json
from functools import cache

import unbraid
from unbraid import Event, Format, Limits, Message, stream_checks

from ...support import laws, strategies
from ...support.byte_vocabulary import WordVocabulary
from ..source import Source

PROMPTS = ["", "<think>\n", "[THINK]", "<tts_start>", "<tts_start>\n<think>\n"]
TOOLS = [None, [{"name": "f"}, {"name": "get_weather"}], strategies.TYPED_TOOLS]
LIMITS = [Limits(), Limits(), Limits(depth=2, name=5, number=3, held=30)]
_BITS = ['{"name": "f"', ', "arguments": ', '{"a": 1}', '"name"', '"x": "', "get_weather", "unknown", "\\u00", "é"]
_BITS += ["😀"]


def text(data: bytes) -> None:
    source = Source(data)
    format = source.choice(strategies.FORMATS)
    options: stream_checks.Options = {
        "prompt": source.choice(PROMPTS),
        "tools": source.choice(TOOLS),
        "limits": source.choice(LIMITS),
    }
    cut = source.below(8)
    pieces = together(source.words(words_of(format), 160), cut)
    size = sum(map(len, pieces))
    laws.all_laws(format, pieces, range(size) if size < 100 else range(0, size, 1 + size // 100), options)


def together(words: list[str], most: int) -> list[str]:
    """Words in groups of 1, 2, … up to `most`, over and over: the ways that chunks come in."""
    pieces, at, size = [], 0, 0
    while at < len(words):
        size = size % (most + 1) + 1
        pieces.append("".join(words[at : at + size]))
        at += size
    return pieces


@cache
def words_of(format: Format) -> list[str]:
    """What may mean something to a format. What it calls `f` with is whole."""
    notation = strategies.notation_of(format)
    found = [*strategies.literals_of(format), *([] if notation is None else notation.hostile), *_BITS]
    if format.tools is not None:
        arguments = json.dumps({"a": "x", "n": 1})
        found.append(unbraid.render(format, Message((unbraid.ToolCall("f", arguments, "abcdefghi"),))))
    return list(dict.fromkeys(found))


def tokens(data: bytes) -> None:
    """Laws 1, 3 and 8, where every byte is a token and so is every marker."""
    source = Source(data)
    format = source.choice(strategies.FORMATS)
    vocabulary, markers = vocabulary_of(format)
    prompt, tools = source.choice(PROMPTS), source.choice(TOOLS)
    cut = source.below(8)
    ids: list[int] = []
    for byte in source.bytes(160):
        ids += [byte] if byte < 128 or not markers else [(byte, 256 + byte % markers, 256 + markers)[byte % 3]]

    def run(groups: list[list[int]]) -> tuple[Message, list[Event]]:
        parser = unbraid.parser(format, tokenizer=vocabulary, seed=7, markup=True, prompt=prompt, tools=tools)
        events = [event for group in groups for event in parser.feed_tokens(group)]
        events += parser.finish()
        return parser.message, events

    whole, events = run([ids])
    stream_checks.in_a_row(events)
    for size in (1, cut + 1):
        message, events = run([ids[at : at + size] for at in range(0, len(ids), size)])
        stream_checks.in_a_row(events)
        assert stream_checks.said(message) == stream_checks.said(whole)
    json.dumps(whole.to_openai()).encode()


@cache
def vocabulary_of(format: Format) -> tuple[WordVocabulary, int]:
    """The bytes and the format's literals, and how many of these there are. Ids beyond are unknown."""
    wanted = [*strategies.literals_of(format), *format.ends]
    if format.speech is not None and format.speech.code:
        wanted += [format.speech.code.format(number) for number in range(format.speech.codes)]
    if format.transcript is not None:
        transcript = format.transcript
        texts = (*transcript.languages, *transcript.tasks, transcript.timeless, *transcript.ignored)
        wanted += [transcript.tag.format(text) for text in texts]
        wanted += [transcript.time(number) for number in range(transcript.times)]
    markers = [text.encode() for text in dict.fromkeys(wanted) if len(text) > 1]
    return WordVocabulary(*(bytes([byte]) for byte in range(256)), *markers, special=len(markers)), len(markers)
