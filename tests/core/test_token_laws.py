"""The laws on token ids, with real tokenizers: whatever groups the tokens come in, the result is that of the text; and
a marker that is a token of the vocabulary is that token only."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import pytest
import tiktoken
from hypothesis import assume, given
from hypothesis import strategies as st

import unbraid
import unbraid.tokens
from unbraid import Event, Message, Speech, Tag, Text, ToolCall
from unbraid.core import diagnostics
from unbraid.core.machine.markers import is_control
from unbraid.core.notations import TaggedArguments
from unbraid.tokens import vocabulary as vocabulary_of

from ..support import real_tokenizers, strategies
from ..support.byte_vocabulary import WordVocabulary
from ..support.examples import examples
from ..support.real_tokenizers import encode, encode_plain

SPEAKING = [format for format in unbraid.all_formats() if format.speech is not None and format.name != "step-audio-2"]
# Format, and a tokenizer of a model that speaks it.
CASES: dict[str, tuple[str, Callable[[], Any]]] = {
    "step-audio-2 tiktoken": ("step-audio-2", lambda: real_tokenizers.step_audio_2("released", "tiktoken")),
    "step-audio-2 shifted ids": ("step-audio-2", lambda: real_tokenizers.step_audio_2("shifted", "tiktoken")),
    "step-audio-2 huggingface": ("step-audio-2", lambda: real_tokenizers.step_audio_2("released", "huggingface")),
    "qwen3": ("qwen3", real_tokenizers.qwen3_huggingface),
    "hermes on qwen3": ("hermes", real_tokenizers.qwen3_huggingface),
    "qwen3-coder": ("qwen3-coder", real_tokenizers.qwen3_huggingface),
    "lfm2": ("lfm2", real_tokenizers.lfm2),
    "gemma-4": ("gemma-4", real_tokenizers.gemma_4),
    "minimax-m3": ("minimax-m3", real_tokenizers.minimax_m3),
    "qwen3 without <think>": ("qwen3", lambda: real_tokenizers.step_audio_2("released", "tiktoken")),
    "mistral v3 sentencepiece": ("mistral", lambda: real_tokenizers.mistral(3)),
    "mistral v3 tekken": ("mistral", lambda: real_tokenizers.mistral(3, tekken=True)),
    "mistral v7": ("mistral", lambda: real_tokenizers.mistral(7)),
    "mistral v11": ("mistral", lambda: real_tokenizers.mistral(11)),
    "mistral v13": ("mistral", lambda: real_tokenizers.mistral(13)),
    "whisper": ("whisper", real_tokenizers.whisper_like),
    **{format.name: (format.name, partial(real_tokenizers.speaking, format.name)) for format in SPEAKING},
}
every_case = pytest.mark.parametrize("case", CASES)
# Where markers are found in the text that tokens spell, one spelled out is the marker.
every_case_of_tokens = pytest.mark.parametrize(
    "case", [case for case, (name, _) in CASES.items() if not unbraid.find(name).spelled_markers]
)
every_case_with_calls = pytest.mark.parametrize(
    "case", [case for case, (name, _) in CASES.items() if unbraid.find(name).tools is not None]
)


_TAG = re.compile(r"<[|｜]?[^<>\s'\"{}=]+[|｜]?>|\[/?[A-Z_]+\]|\]<\]minimax\[>\[")
TWO_STRINGS = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}]


def grouped(ids: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """`ids` in groups of these sizes, over and over."""
    groups, at, turn = [], 0, 0
    while at < len(ids):
        size = sizes[turn % len(sizes)]
        groups.append(list(ids[at : at + size]))
        at, turn = at + size, turn + 1
    return groups


def run(format: str, tokenizer: object, groups: Sequence[Sequence[int]], **options: Any) -> tuple[Message, list[Event]]:
    parser = unbraid.parser(format, tokenizer=tokenizer, seed=7, markup=True, **options)
    events: list[Event] = []
    for group in groups:
        events += parser.feed_tokens(group)
    events += parser.finish()
    return parser.message, events


def said(message: Message) -> tuple[object, ...]:
    return message.parts, [(call.id, call.raw) for call in message.tool_calls], message.diagnostics


def format_of(name: str, tokenizer: object) -> unbraid.Format:
    """The grammar that a parser with this tokenizer uses."""
    return unbraid.parser(name, tokenizer=tokenizer)._machine.format


def encodable(tokenizer: object, text: str) -> bool:
    """Whether the tokenizer gives the text back: SentencePiece writes spaces of its own, Qwen3 normalises."""
    message, _ = run("think", tokenizer, [encode_plain(tokenizer, text)], separate_reasoning=False)  # type: ignore[arg-type]
    return message.content == text


@every_case
@examples(1.5)
@given(data=st.data())
def test_tokens_say_what_the_text_says(case: str, data: st.DataObject) -> None:
    """Laws 1, 5, 7 and 10: all at once, one token at a time, and 1 to 6 at a time as speculative decoding gives."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    message = data.draw(strategies.messages(format))
    sentencepiece = vocabulary_of(tokenizer).dummy_prefix
    for part in message.parts:
        if isinstance(part, Tag):
            continue
        text = part.arguments if isinstance(part, ToolCall) else part.text
        # A token in a string argument is data; anywhere else the text must not happen to spell one. (SentencePiece
        # writes a space of its own after each token, in arguments too.)
        may_hold_tokens = isinstance(part, ToolCall) and not sentencepiece
        assume(encodable(tokenizer, text))
        assume(may_hold_tokens or encode(tokenizer, text) == encode_plain(tokenizer, text))
    ids = encode(tokenizer, unbraid.render(format, message))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    whole, _ = run(name, tokenizer, [ids], prompt="")
    assert said(run(name, tokenizer, grouped(ids, [1]), prompt="")[0]) == said(whole)
    assert said(run(name, tokenizer, grouped(ids, sizes), prompt="")[0]) == said(whole)
    if sentencepiece:
        whole, message = without_leading_spaces(whole), without_leading_spaces(message)
    assert whole == message
    assert whole.diagnostics == ()


def without_leading_spaces(message: Message) -> Message:
    """SentencePiece begins each stretch between control tokens with a space of its own."""
    parts = [Text(p.strand, p.text.lstrip(" ")) if isinstance(p, Text) else p for p in message.parts]
    return Message(tuple(parts), message.diagnostics)


@every_case
@examples(1.5)
@given(data=st.data())
def test_hostile_tokens(case: str, data: st.DataObject) -> None:
    """Laws 1, 3 and 8 on any tokens at all, markers as tokens and markers spelled out among them."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    pieces = data.draw(st.lists(strategies.hostile(format), max_size=3))
    ids: list[int] = []
    for piece in pieces:
        ids += (encode if data.draw(st.booleans()) else encode_plain)(tokenizer, piece)
    ids += data.draw(st.lists(st.integers(0, 130_000), max_size=4))
    whole, events = run(name, tokenizer, [ids])
    assert said(run(name, tokenizer, grouped(ids, [1]))[0]) == said(whole)
    assert said(run(name, tokenizer, grouped(ids, data.draw(st.lists(st.integers(1, 6), min_size=1))))[0]) == said(
        whole
    )
    at = 0
    for start, end in sorted((event.start, event.end) for event in events if event.end > event.start):
        assert start == at, "a gap, or an overlap"
        at = end
    json.dumps(whole.to_openai()).encode()


def counting(
    name: str,
    tokenizer: object,
    groups: Sequence[Sequence[int]],
    through_snapshots: bool = False,
    label_tokens: bool = False,
) -> unbraid.Parser:
    def new() -> unbraid.Parser:
        options: dict[str, Any] = {"count_tokens": True, "label_tokens": label_tokens, "keep_message": False}
        return unbraid.parser(name, tokenizer=tokenizer, seed=7, prompt="", **options)

    parser = new()
    for group in groups:
        parser.feed_tokens(group)
        if through_snapshots:
            saved = json.loads(json.dumps(parser.snapshot()))
            parser = new()
            parser.restore(saved)
    parser.finish()
    return parser


def counted(
    name: str, tokenizer: object, groups: Sequence[Sequence[int]], through_snapshots: bool = False
) -> dict[str, int]:
    return counting(name, tokenizer, groups, through_snapshots).tokens


@every_case
@examples(1.5)
@given(data=st.data())
def test_every_token_belongs_to_one_strand(case: str, data: st.DataObject) -> None:
    """Whatever the tokens are, and however they are cut: the counts add up, and are the same."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    message = data.draw(strategies.messages(format))
    pieces = [unbraid.render(format, message)]
    clean = data.draw(st.booleans())
    if not clean:
        pieces += data.draw(st.lists(strategies.hostile(format), max_size=3))
    ids = [token for piece in pieces for token in encode(tokenizer, piece)]
    if not clean:
        ids += data.draw(st.lists(st.integers(0, 130_000), max_size=4))
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    whole = counted(name, tokenizer, [ids])
    assert sum(whole.values()) == len(ids)
    labelled = counting(name, tokenizer, [ids], label_tokens=True)
    assert Counter(labelled.token_strands) == Counter(whole)
    assert len(labelled.token_markup) == len(ids)
    cut = counting(name, tokenizer, grouped(ids, sizes), True, label_tokens=True)
    assert (cut.token_strands, cut.token_markup) == (labelled.token_strands, labelled.token_markup)
    assert counted(name, tokenizer, grouped(ids, [1])) == whole
    assert counted(name, tokenizer, grouped(ids, sizes), through_snapshots=True) == whole
    if clean:
        read = unbraid.parse(name, ids, tokenizer=tokenizer, prompt="")
        assert bool(whole["reasoning"]) >= bool(read.reasoning)
        assert bool(whole["tool_calls"]) == bool(read.tool_calls)
        if format.transcript is None:
            assert whole["audio"] >= sum(len(speech.codes) for speech in read.speech)


def test_what_was_decoded_before_changes_no_count() -> None:
    """A dummy prefix has no text of its own. It belongs with the token after it, seen before or not."""
    tokenizer = real_tokenizers.mistral(7)
    ids = encode_plain(tokenizer, "Ïn[THINK]why[/THINK]so")
    for _ in range(2):
        for groups in ([ids], grouped(ids, [1])):
            for through_snapshots in (False, True):
                parser = counting("mistral", tokenizer, groups, through_snapshots, label_tokens=True)
                assert parser.token_strands[:3] == ("content",) * 3
                assert parser.tokens == counted("mistral", tokenizer, groups, through_snapshots)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_token_belongs_to_the_strand_that_its_text_went_to(size: int) -> None:
    """A marker belongs to the strand that it opens or closes, and what ends the turn to the content."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    parts = {
        "reasoning": "<think>\nSee 東京 𓀀.\n</think>\n\n",
        "content": "Well.",
        "tool_calls": '\n<tool_call>\n{"name": "f", "arguments": {"a": "</think>"}}\n</tool_call>',
    }
    each = {strand: encode(tokenizer, text) for strand, text in parts.items()}
    end = encode(tokenizer, "<|im_end|>")
    ids = [token for tokens in each.values() for token in tokens] + end
    found = counted("qwen3", tokenizer, grouped(ids, [size]))
    assert found["reasoning"] == len(each["reasoning"])
    assert found["tool_calls"] == len(each["tool_calls"])
    assert found["content"] == len(each["content"]) + len(end)


@pytest.mark.parametrize(
    "case",
    [case for case, (name, _) in CASES.items() if isinstance(strategies.node_of(unbraid.find(name)), TaggedArguments)],
)
def test_14_a_value_may_hold_the_tokens_of_markers(case: str) -> None:
    name, make = CASES[case]
    tokenizer = make()
    for quote in strategies.quotes(unbraid.find(name))[-3:]:  # all of them at once
        call = ToolCall("f", json.dumps({"a": quote, "b": "x"}, ensure_ascii=False), "abcdefghi")
        ids = encode(tokenizer, unbraid.render(name, Message((call,))))
        message, _ = run(name, tokenizer, [[token] for token in ids], prompt="", tools=TWO_STRINGS)
        assert message.tool_calls == (call,)
        assert message.content == ""


@every_case_of_tokens
@examples(1.5)
@given(data=st.data())
def test_6_a_marker_spelled_out_is_text(case: str, data: st.DataObject) -> None:
    """Nobody can forge a call by having the model echo its markup."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    vocabulary = vocabulary_of(tokenizer)
    markers = strategies.markers_of(format) if format.transcript is None else strategies.tags_of(format.transcript)
    if format.speech is not None and format.speech.code:
        markers.append(format.speech.code.format(7))
    spelled_out = [marker for marker in markers if vocabulary.token_id(marker) is not None]
    assert spelled_out or not markers
    text = data.draw(st.lists(st.sampled_from([*spelled_out, "Hello", '{"name": "f"}']), max_size=4).map(" ".join))
    ids = encode_plain(tokenizer, text)
    message, _ = run(name, tokenizer, grouped(ids, [1]), prompt="")
    if format.speech is not None and format.speech.implied:
        assert message.parts == ((Speech(text),) if text else ())
        return
    assert message.content == text
    assert not message.tool_calls
    assert not message.reasoning
    assert not message.speech
    assert message.language is None


@every_case_with_calls
def test_6_a_call_forged_in_plain_tokens(case: str) -> None:
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    text = unbraid.render(format, Message((ToolCall("f", '{"a": 1}', "abcdefghi"),)))
    assert run(name, tokenizer, [encode(tokenizer, text)], prompt="")[0].tool_calls
    message = run(name, tokenizer, [encode_plain(tokenizer, text)], prompt="")[0]
    if format.spelled_markers:
        assert message.tool_calls
        return
    assert format.tools is not None
    assert format.tools.open.strip() in message.content
    # Qwen3-Coder's models leave the token out: then the text that follows it begins the call.
    assert bool(message.tool_calls) == any(calls.open in text for calls in format.other_tools)


def answered(format: unbraid.Format, answer: str) -> str:
    """An answer after reasoning, as the model writes it."""
    before: tuple[Text, ...] = () if format.reasoning is None else (Text("reasoning", "why"),)
    return unbraid.render(format, Message((*before, Text("content", answer))))


@every_case_with_calls
def test_15_an_answer_that_names_a_marker_keeps_its_words(case: str) -> None:
    """A token that no prose has names something in code alone, unless the family reasons again: see law 15."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    opens = {format.reasoning.open.strip()} if format.reasoning is not None else set()
    for marker, answers in strategies.named(format).items() if format.speech is None else ():
        for answer in answers:
            is_token = any(
                vocabulary_of(tokenizer).token_id(tag) is not None for tag in (marker, *_TAG.findall(marker))
            )
            control = is_control(marker) or marker.startswith("[")
            named = marker in opens and (format.reasoning_again or not control)
            if is_token and "`" not in answer and not named and not marker.startswith("<t"):
                continue
            message, _ = run(name, tokenizer, grouped(encode(tokenizer, answered(format, answer)), [1]), prompt="")
            assert message.content.replace(" ", "") == answer.replace(" ", ""), (marker, message.diagnostics)
            assert message.tool_calls == ()


def opener_again(format: unbraid.Format) -> str:
    """What opens reasoning, if it may open again after the answer has begun: in a line of that, it is its name."""
    return format.reasoning.open if format.reasoning is not None and format.reasoning_again else ""


@every_case_with_calls
def test_16_no_token_of_the_format_is_shown(case: str) -> None:
    """Wherever the output is cut off, and whatever noise it has."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    call = unbraid.render(format, Message((ToolCall("f", '{"a": "b"}', "abcdefghi"),)))
    ids = encode(tokenizer, answered(format, "so") + call)
    noises = [noise for noise in strategies.noises_of(format) if noise not in opener_again(format)]
    outputs = [ids[:size] for size in range(len(ids))]
    ways = ("{} x ", call + "{}", *(() if format.spelled_markers else ("so {} x",)))
    outputs += [encode(tokenizer, way.replace("{}", noise)) for noise in noises for way in ways]
    for output in outputs:
        message, _ = run(name, tokenizer, [output], prompt="", tools=[])
        assert not is_control(message.content + message.reasoning), message


@every_case_of_tokens
def test_a_marker_in_ordinary_tokens_loses_neither_end(case: str) -> None:
    """The opener is text, and so what closes it is, too."""
    name, make = CASES[case]
    tokenizer = make()
    format = format_of(name, tokenizer)
    pairs: list[Any] = [format.reasoning] if format.reasoning is not None else []
    pairs += [format.tools] if format.tools is not None and format.tools.close and not format.tools.bare else []
    for pair in pairs if format.speech is None else []:
        open, close = pair.open.strip(), pair.close.strip()
        if vocabulary_of(tokenizer).token_id(open) is None:
            continue
        ids = [*encode_plain(tokenizer, f"{open}x"), *encode(tokenizer, close), *encode_plain(tokenizer, " y")]
        message, _ = run(name, tokenizer, grouped(ids, [1]), prompt="")
        assert message.content.replace(" ", "") == f"{open}x{close}y"


@every_case
@examples(1.5)
@given(data=st.data())
def test_snapshots(case: str, data: st.DataObject) -> None:
    name, make = CASES[case]
    tokenizer = make()
    ids = encode(tokenizer, data.draw(strategies.hostile(format_of(name, tokenizer))))
    groups = grouped(ids, data.draw(st.lists(st.integers(1, 6), min_size=1)))
    whole, _ = run(name, tokenizer, groups)
    parser = unbraid.parser(name, tokenizer=tokenizer, seed=7)
    for group in groups:
        parser.feed_tokens(group)
        saved = json.loads(json.dumps(parser.snapshot()))
        parser = unbraid.parser(name, tokenizer=tokenizer, seed=8)
        parser.restore(saved)
    parser.finish()
    assert said(parser.message) == said(whole)


# --- Step-Audio 2: text and audio interleaved ----------------------------------------------------------------------

STEP = [case for case in CASES if case.startswith("step-audio-2")]


def interleaved(tokenizer: Any, text: str, codes: list[int]) -> list[int]:
    """One text token to four audio tokens, padded where one of the two is shorter."""
    words = encode_plain(tokenizer, text)
    audio = [encode(tokenizer, f"<audio_{code}>")[0] for code in codes]
    [pad], [audio_pad] = encode(tokenizer, "<tts_pad>"), encode(tokenizer, "<audio_6561>")
    ids: list[int] = []
    for turn in range(max(len(words), -(-len(audio) // 4))):
        ids.append(words[turn] if turn < len(words) else pad)
        four = audio[4 * turn : 4 * turn + 4]
        ids += four + [audio_pad] * (4 - len(four))
    return ids


@pytest.mark.parametrize("case", STEP)
@examples(7)
@given(data=st.data())
def test_interleaved_speech(case: str, data: st.DataObject) -> None:
    """Characters and markers that are cut over text tokens, with audio between, come out whole."""
    tokenizer = CASES[case][1]()
    text = data.draw(st.text(st.sampled_from("Hello, wörld! 天气预报😀\U00020bb7é\n"), max_size=12))
    thought = data.draw(st.text(st.sampled_from("hm 思考😀"), max_size=6))
    codes = data.draw(st.lists(st.integers(0, 6560), max_size=60))
    spoken = f"<think>\n{thought}\n</think>\n\n{text}" if thought else text
    ids = interleaved(tokenizer, spoken, codes)
    call = '<tool_call>function\nsearch\n{"query": "北京天气"}</tool_call>'
    ids += encode(
        tokenizer, data.draw(st.sampled_from(["", "<tts_end>", call, f"<tts_end>{call}", f"{call}<tts_end>"]))
    )
    prompt = encode(tokenizer, "<|BOT|>assistant\n<tts_start>")
    for sizes in ([len(ids) or 1], [1], data.draw(st.lists(st.integers(1, 6), min_size=1))):
        message, _ = run("step-audio-2", tokenizer, grouped(ids, sizes), prompt=prompt)
        assert "".join(part.text for part in message.speech) == text
        assert [code for part in message.speech for code in part.codes] == codes
        assert message.reasoning == thought
        assert message.content == ""
        assert message.diagnostics == ()
        assert all(found == ToolCall("search", '{"query": "北京天气"}') for found in message.tool_calls)


# --- Other models that speak: text and audio interleaved in other ways --------------------------------------------


def braided(format: unbraid.Format, tokenizer: Any, text: str, codes: list[int]) -> list[list[int] | tuple[int, ...]]:
    """Text and audio in turn as the model was trained, or drifted from it: ids in lists, codes from a head of their own
    in tuples. Padding and what stands around codes is there where the tokenizer has it."""
    speech = format.speech
    assert speech is not None
    words, at = encode_plain(tokenizer, text), 0
    texts, audios = speech.ratio or (3, 4)
    turns: list[list[int] | tuple[int, ...]] = []
    while words or at < len(codes):
        turns.append(words[:texts])
        words = words[texts:]
        some = codes[at : at + audios * speech.codebooks]
        at += len(some)
        if speech.first_token is not None:
            turns.append([speech.first_token + code for code in some])
        elif speech.code:
            turns.append(encode(tokenizer, "".join(speech.code.format(code) for code in some).join(speech.around)))
        else:
            turns += [encode(tokenizer, speech.around[0]), tuple(some), encode(tokenizer, speech.around[1])]
            turns.append(encode(tokenizer, "".join(speech.padding)))
    return turns


@pytest.mark.parametrize("format", SPEAKING, ids=attrgetter("name"))
@examples(3)
@given(data=st.data())
def test_braided_speech(format: unbraid.Format, data: st.DataObject) -> None:
    """Whatever the ratio, with or without delimiters: characters that audio cuts in two come out whole."""
    tokenizer, speech = real_tokenizers.speaking(format.name), format.speech
    assert speech is not None
    text = data.draw(st.text(st.sampled_from("Hello, wörld! 天气预报😀\U00020bb7é\n"), max_size=12))
    frames = data.draw(st.lists(st.integers(0, speech.codes - 1), max_size=30))
    codes = [code for code in frames for _ in range(speech.codebooks)]
    turns = braided(format, tokenizer, text, codes)
    end = encode(tokenizer, format.ends[0])
    for size in (1, 3, 1000):
        parser = unbraid.Parser(format, tokenizer=tokenizer, prompt=speech.open or None)
        for turn in [*turns, end]:
            if isinstance(turn, tuple):
                parser.feed_codes(turn)
            else:
                for group in grouped(turn, [size]):
                    parser.feed_tokens(group)
        parser.finish()
        assert parser.message.parts == ((Speech(text, tuple(codes)),) if text or codes else ())
        assert parser.message.diagnostics == ()


def test_frames_without_audio_are_left_out() -> None:
    """A head of its own says for every token whether there is audio beside it."""
    tokenizer = real_tokenizers.speaking("mimo-audio")
    parser = unbraid.Parser("mimo-audio", tokenizer=tokenizer, prompt="<|im_start|>assistant\n<|sostm|>")
    silence = [1024, 1024, *[128] * 6]
    for token in encode_plain(tokenizer, "天气很好"):
        parser.feed_tokens([token])
        assert parser.feed_codes(silence * 4) == []
    for frame in range(5):
        parser.feed_tokens(encode(tokenizer, "<|empty|>"))
        parser.feed_codes([frame] * 32)
    parser.feed_tokens(encode(tokenizer, "<|eot|><|empty|><|eostm|>"))
    parser.feed_codes(silence)
    parser.feed_tokens(encode(tokenizer, "<|im_end|>"))
    codes = tuple(frame for frame in range(5) for _ in range(32))
    assert parser.message.parts == (Speech("天气很好", codes),)
    with pytest.raises(unbraid.UnbraidError, match="whole frames of 8 codes"):
        parser.feed_codes([1, 2, 3])
    with pytest.raises(unbraid.UnbraidError, match="'qwen3' has no audio codes beside"):
        unbraid.Parser("qwen3").feed_codes([1])


def test_codes_from_a_head_of_their_own_come_at_once() -> None:
    """Even inside a marker and a character, and inside a string, where a token would be data."""
    tokenizer = real_tokenizers.speaking("lfm2-audio")
    format = unbraid.compose(reasoning="think", tools="hermes", audio="lfm2-audio")
    text = '<think>\nhm\n</think>\n\nHi<tool_call>\n{"name": "f", "arguments": {"a": "天气"}}\n</tool_call>'
    ids = encode_plain(tokenizer, text.partition("<tool_call>")[0]) + encode(
        tokenizer, text[text.index("<tool_call>") :]
    )
    parser = unbraid.Parser(format, tokenizer=tokenizer, markup=True)
    events: list[Event] = []
    for at, token in enumerate(ids):
        events += parser.feed_tokens([token])
        audio = parser.feed_codes([at] * 8)
        assert [event.codes for event in audio if isinstance(event, unbraid.SpeechAudio)] == [(at,) * 8]
        events += audio
    events += parser.finish()
    message = parser.message
    assert (message.reasoning, message.tool_calls) == ("hm", (ToolCall("f", '{"a": "天气"}'),))
    assert [part.text for part in message.speech] == ["Hi"]
    assert message.diagnostics == ()
    at = 0
    for start, end in sorted((event.start, event.end) for event in events if event.end > event.start):
        assert start == at, "a gap, or an overlap"
        at = end


def test_a_turn_that_is_not_spoken() -> None:
    """Where no marker says that the model speaks, the caller does."""
    format = unbraid.find("glm-4-voice")
    assert unbraid.parse(format, "Hi<|audio_3|>!").parts == (Speech("Hi!", (3,)),)
    silent = format.silent()
    assert unbraid.parse(silent, "Hi!").parts == (Text("content", "Hi!"),)
    tokenizer = real_tokenizers.speaking("glm-4-voice")
    for output in ("Hi<|audio_3|>!", encode(tokenizer, "Hi<|audio_3|>!<|user|>")):
        message = unbraid.parse(silent, output, tokenizer=tokenizer)
        assert (message.content, message.speech) == ("Hi!", (Speech("", (3,)),))
        assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.STRAY_AUDIO]
    assert unbraid.find("step-audio-2").silent() is unbraid.find("step-audio-2")


@pytest.mark.parametrize("case", STEP)
def test_prompt_ids(case: str) -> None:
    tokenizer = CASES[case][1]()
    speech = encode(tokenizer, "Hi<audio_3>")
    for end, expected in (
        ("<tts_start>", (Speech("Hi", (3,)),)),
        ("<tts_start>\n", (Speech("Hi", (3,)),)),
        ("\n<think>\n", (Text("reasoning", "Hi"), Speech("", (3,)))),
        ("", (Text("content", "Hi"), Speech("", (3,)))),
    ):
        prompt = encode(tokenizer, f"<|BOT|>human\nsay <tts_start><|EOT|><|BOT|>assistant\n{end}")
        assert run("step-audio-2", tokenizer, [speech], prompt=prompt)[0].parts == expected
    # Spelled out in plain tokens, the marker is a user's text.
    spelled = encode_plain(tokenizer, "assistant\n<tts_start>")
    assert run("step-audio-2", tokenizer, [speech], prompt=spelled)[0].content == "Hi"


@pytest.mark.parametrize(
    ("turn", "reasoning", "content"),
    [
        ("<think>\nI was", " thinking", "Yes"),
        ("<think>\nI was" + " there" * 200, " thinking", "Yes"),
        ("<think>\nI was\n</think>\n\nI am", "", " thinkingYes"),
        ("I am", "", " thinkingYes"),
    ],
)
def test_a_prompt_that_breaks_off(turn: str, reasoning: str, content: str) -> None:
    """Inside a strand, and by tokens: what a user has said, and turns that are over, mean nothing."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    history = "<|im_start|>assistant\n<think>\nhm<|im_end|>\n<|im_start|>user\nAnd <think>?<|im_end|>\n"
    prompt = encode(tokenizer, f"{history}<|im_start|>assistant\n{turn}")
    output = encode(tokenizer, " thinking" + ("\n</think>\n\nYes" if reasoning else "Yes"))
    message, _ = run("qwen3", tokenizer, grouped(output, [1]), prompt=prompt)
    assert (message.reasoning, message.content, message.diagnostics) == (reasoning, content, ())


def test_a_prompt_that_breaks_off_in_a_message() -> None:
    tokenizer = real_tokenizers.qwen3_with("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
    begin = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>I was"
    output = " thinking<|end|><|start|>assistant<|channel|>final<|message|>Yes<|return|>"
    for prompt in (begin, begin + " there" * 200):
        ids = encode(tokenizer, prompt)
        message, _ = run("harmony", tokenizer, grouped(encode(tokenizer, output), [1]), prompt=ids)
        assert (message.reasoning, message.content, message.diagnostics) == (" thinking", "Yes", ())


def test_audio_outside_speech_is_kept() -> None:
    tokenizer = real_tokenizers.step_audio_2()
    message, _ = run("step-audio-2", tokenizer, [encode(tokenizer, "a<audio_1><audio_2>b")])
    assert message.content == "ab"
    assert message.speech[0].codes == (1, 2)
    assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.STRAY_AUDIO]


def test_end_of_turn_is_a_token_only() -> None:
    tokenizer = real_tokenizers.step_audio_2()
    assert run("step-audio-2", tokenizer, [encode(tokenizer, "bye<|EOT|>")])[0].content == "bye"
    assert run("step-audio-2", tokenizer, [encode_plain(tokenizer, "bye<|EOT|>")])[0].content == "bye<|EOT|>"
    assert unbraid.parse("step-audio-2", "bye<|EOT|>").content == "bye<|EOT|>"


def test_unknown_ids_and_broken_characters() -> None:
    tokenizer = real_tokenizers.step_audio_2()
    message, _ = run("step-audio-2", tokenizer, [[*encode(tokenizer, "a"), 10**7, *encode(tokenizer, "b")]])
    assert message.content == "a\ufffdb"
    assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.UNKNOWN_TOKEN]
    half = encode_plain(tokenizer, "\U0001faae")[:1]
    call = encode(tokenizer, '<tool_call>function\nf\n{"a": 1}</tool_call>')
    message, _ = run("step-audio-2", tokenizer, grouped([*half, *call, *half], [1]))
    assert message.content == "\ufffd\n\ufffd"
    assert message.tool_calls == (ToolCall("f", '{"a": 1}'),)


def test_missing_tokens_are_named() -> None:
    ranks, pattern = real_tokenizers.qwen_base()
    plain = tiktoken.Encoding("plain", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<tts_end>": 151694})
    with pytest.raises(unbraid.MissingTokens, match="<tts_start>, <audio_0>"):
        unbraid.parser("step-audio-2", tokenizer=plain)


@pytest.mark.parametrize(("version", "format"), [(2, "mistral-v3"), (3, "mistral-v3"), (7, "mistral-v3")])
def test_versions_of_mistral(version: int, format: str) -> None:
    assert format_of("mistral", real_tokenizers.mistral(version)).name == format
    assert format_of("mistral", real_tokenizers.mistral(11)).name == "mistral-v11"
    assert format_of("mistral", real_tokenizers.mistral(13)).name == "mistral-v13"
    assert format_of("mistral", real_tokenizers.qwen3_huggingface()).name == "mistral"


def test_text_to_a_parser_with_a_tokenizer() -> None:
    """Whoever feeds text gets markers found in text; the tokenizer still tells the version. The two do not mix."""
    text = "<think>\nhm\n</think>\n\nyes"
    tokenizer = real_tokenizers.qwen3_huggingface()
    parser = unbraid.parser("qwen3", tokenizer=tokenizer, prompt=encode(tokenizer, "<|im_start|>assistant\n<think>\n"))
    parser.feed("hm\n</think>\n\n")
    saved = parser.snapshot()
    with pytest.raises(unbraid.UnbraidError, match="fed text"):
        parser.feed_tokens([1])
    parser = unbraid.parser("qwen3", tokenizer=tokenizer)
    parser.restore(saved)
    parser.feed("yes")
    assert (parser.message.reasoning, parser.message.content) == ("hm", "yes")
    assert unbraid.parse("qwen3", text, tokenizer=tokenizer).reasoning == "hm"
    calls = '[TOOL_CALLS][{"name": "f", "arguments": {}}]'
    assert not unbraid.parse("mistral", calls, tokenizer=real_tokenizers.mistral(11)).tool_calls
    parser = unbraid.parser("qwen3", tokenizer=tokenizer)
    parser.feed_tokens(encode(tokenizer, text))
    with pytest.raises(unbraid.UnbraidError, match="fed token ids"):
        parser.feed("more")


def test_the_end_of_the_turn_ends_a_string_too() -> None:
    """A turn that is cut off inside an argument: the token that ends it is never data."""
    tokenizer = real_tokenizers.qwen3_huggingface()
    ids = encode(tokenizer, '<tool_call>\n{"name": "f", "arguments": {"city": "Par<|im_end|>')
    message, _ = run("qwen3", tokenizer, grouped(ids, [1]))
    assert message.tool_calls == (ToolCall("f", '{"city": "Par', complete=False),)
    assert message.content == ""
    assert [diagnostic.kind for diagnostic in message.diagnostics] == [diagnostics.UNFINISHED_CALL]


def test_a_marker_token_in_a_key_is_a_marker() -> None:
    tokenizer = real_tokenizers.qwen3_huggingface()
    text = '<tool_call>{"name": "a", "pa</tool_call>\n<tool_call>{"name": "b", "arguments": {"x": 1}}</tool_call>'
    message, _ = run("qwen3", tokenizer, [encode(tokenizer, text)])
    assert [call.name for call in message.tool_calls] == ["a", "b"]


def test_an_empty_feed_decides_nothing() -> None:
    parser = unbraid.parser("qwen3", tokenizer=real_tokenizers.qwen3_huggingface())
    parser.feed_tokens([])
    parser.feed("<think>\nhm\n</think>")
    assert parser.message.reasoning == "hm"


@pytest.mark.parametrize(("format", "case"), [("gemma-4", "gemma-4"), ("mistral-v13", "mistral v13")])
def test_5_a_string_where_the_schema_has_none(format: str, case: str) -> None:
    tokenizer = CASES[case][1]()
    tools = [{"name": "f", "parameters": {"properties": {"n": {"type": "integer"}, "l": {"type": "array"}}}}]
    marker = "[ARGS]" if format == "mistral-v13" else "<|tool_call>"
    call = ToolCall("f", json.dumps({"n": "3", "l": json.dumps([marker])}), "abcdefghi")
    ids = encode(tokenizer, unbraid.render(format, Message((call,))))
    for size in (1, 3, len(ids)):
        message, _ = run(format, tokenizer, grouped(ids, [size]), tools=tools, prompt="")
        assert [one.arguments for one in message.tool_calls] == [json.dumps({"n": 3, "l": [marker]})]


WITHOUT_SPEECH = [format.name for format in unbraid.all_formats() if format.speech is None and format.tools is not None]


@pytest.mark.parametrize("name", WITHOUT_SPEECH)
def test_every_tag_may_be_a_token(name: str) -> None:
    """Which tags of a format are tokens, its tokenizer decides: the inner ones as well as the outer ones."""
    format = unbraid.find(name)
    call = ToolCall("get_weather", '{"city": "Oslo"}')
    thought = (Text("reasoning", "Hm."),) if format.reasoning is not None else ()
    for parts in ((*thought, Text("content", "Hi."), call), (call, call)):
        text = unbraid.render(format, Message(parts))
        tags = list(dict.fromkeys(_TAG.findall(text)))
        message, _ = run(name, tags_as_tokens(tags), grouped(ids_with_tags(text, tags), [1]))
        expected = unbraid.parse(name, text)
        assert message.parts == replaced_ids(expected.parts, message.parts)


def tags_as_tokens(tags: Sequence[str]) -> WordVocabulary:
    """A vocabulary of bytes and these tags."""
    return WordVocabulary(*(bytes([byte]) for byte in range(256)), *map(str.encode, tags), special=len(tags))


def ids_with_tags(text: str, tags: Sequence[str]) -> list[int]:
    """The text with its tags as tokens."""
    pieces = re.split(f"({'|'.join(map(re.escape, tags))})", text) if tags else [text]
    return [id for at, piece in enumerate(pieces) for id in ([256 + tags.index(piece)] if at % 2 else piece.encode())]


@pytest.mark.parametrize("name", WITHOUT_SPEECH)
def test_15_16_a_control_token_that_stands_alone_is_markup_and_the_words_around_it_are_kept(name: str) -> None:
    """In an answer, at its beginning and end, after reasoning and after a call, once and twice: each tag of the format
    that no prose has. It opens reasoning again only where the template lets it; in code it is a name."""
    format = unbraid.find(name)
    tags = list(dict.fromkeys(tag for text in strategies.literals_of(format) for tag in _TAG.findall(text)))
    vocabulary = tags_as_tokens(tags)
    reasoned = unbraid.render(format, Message((Text("reasoning", "why"),))) if format.reasoning is not None else ""
    call = unbraid.render(format, Message((ToolCall("f", '{"a": "b"}', "abcdefghi"),)))
    ways = ["{} alpha, beta", "alpha {} beta", "alpha\n{} beta", "alpha {}{} beta", "alpha{}", f"{call}{{}} alpha."]
    if format.reasoning is not None and format.headers is None and format.calls_in_reasoning:
        ways += [f"{format.reasoning.open}alpha {{}} beta", f"{format.reasoning.open}{{}}{{}} alpha"]
    for tag in filter(is_control, tags):
        for way in (*ways, f"{reasoned}{{}} alpha", f"{reasoned}alpha {{}} beta"):
            ids = ids_with_tags(way.replace("{}", tag), tags)
            message, _ = run(name, vocabulary, grouped(ids, [1]), prompt="", tools=[])
            assert said(message) == said(run(name, vocabulary, [ids], prompt="", tools=[])[0])
            named = tag in opener_again(format)
            assert named or not is_control(message.content + message.reasoning), (tag, way, message)
            cut_off = any(one.kind == diagnostics.UNFINISHED_CALL for one in message.diagnostics)
            words = re.findall("alpha|beta", message.content + message.reasoning)
            assert cut_off or sorted(words) == re.findall("alpha|beta", way), (tag, way, message)
            if not format.reasoning_again and format.headers is None and way.startswith("alpha"):
                assert not message.reasoning
        message, _ = run(name, vocabulary, [ids_with_tags(f"It is `{tag}` so", tags)], prompt="", tools=[])
        assert tag in message.content or tag in format.ends


@pytest.mark.parametrize("name", ["dots", "minimax-m2", "seed-oss", "longcat", "iquest-q1"])
def test_16_what_closes_calls_of_one_family_is_not_shown_at_the_end(name: str) -> None:
    tools = unbraid.find(name).tools
    assert tools is not None
    tags = [tools.close.strip()]
    for size in (1, 100):
        ids = grouped(ids_with_tags(f"Done.{tags[0]}", tags), [size])
        assert run(name, tags_as_tokens(tags), ids, prompt="")[0].content == "Done."


def replaced_ids(parts: Sequence[unbraid.Part], ids_of: Sequence[unbraid.Part]) -> tuple[unbraid.Part, ...]:
    """The parts, with the ids of other calls."""
    ids = iter([part.id for part in ids_of if isinstance(part, ToolCall)])
    return tuple(replace(part, id=next(ids, "")) if isinstance(part, ToolCall) else part for part in parts)
