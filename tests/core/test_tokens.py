"""The adapters, against real tokenizers."""

from __future__ import annotations

import gc
import json
import unicodedata
import weakref
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import tiktoken
import tokenizers
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from unbraid.core.vocabulary import Vocabulary
from unbraid.tokens import vocabulary

from ..support import real_tokenizers as real
from ..support.examples import examples

BLOCK = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's space: as text it cannot be told from one

# Qwen's tokenizers and Mistral's tekken keep every text; Qwen3's normalises it; the others put a space before it.
EXACT: dict[str, Callable[[], Any]] = {
    "step-audio-2 tiktoken": lambda: real.step_audio_2(kind="tiktoken"),
    "step-audio-2 shifted tiktoken": lambda: real.step_audio_2("shifted", "tiktoken"),
    "step-audio-2 huggingface": lambda: real.step_audio_2(kind="huggingface"),
    "step-audio-2 shifted huggingface": lambda: real.step_audio_2("shifted", "huggingface"),
    "mistral 3 tekken": lambda: real.mistral(3, tekken=True),
    "mistral 7 tekken": lambda: real.mistral(7, tekken=True),
    "mistral 11": lambda: real.mistral(11),
    "mistral 13": lambda: real.mistral(13),
}
NFC: dict[str, Callable[[], Any]] = {"qwen3": real.qwen3_huggingface}
PREFIXED: dict[str, Callable[[], Any]] = {
    "mistral 1": lambda: real.mistral(1),
    "mistral 2": lambda: real.mistral(2),
    "mistral 3": lambda: real.mistral(3),
    "mistral 7": lambda: real.mistral(7),
    "mistral 1 huggingface": real.mistral_1_huggingface,
}
ALL = {**EXACT, **NFC, **PREFIXED}

SNIPPETS = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "é",
    "e\u0301",
    "你好",
    "日本語",
    "🦙",
    "👩‍👩‍👧",
    "🇫🇷",
    "\u200b",
    "\u3000",
    "\x00",
    "{",
    '"a":',
    "]",
]
SNIPPETS += ["<tool_call>", "<think>", "[TOOL_CALLS]", "<s>", "</s>", "<unk>", "<0x0A>", "<|im_end|>", "<audio_7>", "Ġ"]
TEXTS = st.lists(st.one_of(st.text(max_size=12), st.sampled_from(SNIPPETS), st.just("word")), max_size=12).map("".join)

# A fixture-like argument that is read only, and tokenizers that are slow to make: neither is a reason to fail.
thorough = examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@cache
def some_texts() -> list[str]:
    """Texts for all tokenizers: drawn once, as that takes longer than to encode them."""
    drawn: list[str] = []

    @thorough
    @given(text=TEXTS)
    def draw(text: str) -> None:
        drawn.append(text)

    draw()
    return drawn


@cache
def plain_ids(name: str) -> list[tuple[str, list[int]]]:
    """The texts, and the ids that a tokenizer has for each of them as plain text."""
    return [(text, real.encode_plain(ALL[name](), text)) for text in some_texts()]


def joined(tokens: Vocabulary, ids: list[int]) -> bytes:
    found = [tokens.token_bytes(token) for token in ids]
    assert None not in found
    return b"".join(filter(None, found))


@cache
def specials_of(name: str) -> dict[str, int]:
    """The special and added tokens, as the tokenizer's own library tells them."""
    tokenizer = ALL[name]()
    if isinstance(tokenizer, tiktoken.Encoding):
        return {text: tokenizer.encode_single_token(text) for text in tokenizer.special_tokens_set}
    if isinstance(tokenizer, tokenizers.Tokenizer):
        return {added.content: token for token, added in tokenizer.get_added_tokens_decoder().items()}
    inner = tokenizer.instruct_tokenizer.tokenizer
    return {inner.id_to_piece(token): token for token in inner.special_ids}


# Bytes


@pytest.mark.parametrize("name", EXACT)
def test_bytes_are_the_text(name: str) -> None:
    tokenizer = ALL[name]()
    tokens = vocabulary(tokenizer)
    for text, ids in plain_ids(name):
        assert joined(tokens, ids) == text.encode()
        assert joined(tokens, real.encode(tokenizer, text)) == text.encode()


@pytest.mark.parametrize("name", NFC)
def test_bytes_are_the_normalized_text(name: str) -> None:
    tokenizer = ALL[name]()
    tokens = vocabulary(tokenizer)
    for text, ids in plain_ids(name):
        normal = unicodedata.normalize("NFC", text).encode()
        assert joined(tokens, ids) == normal
        if not any(special in text for special in specials_of(name)):  # stretches between them are normalised apart
            assert joined(tokens, real.encode(tokenizer, text)) == normal


@pytest.mark.parametrize("name", PREFIXED)
def test_bytes_are_the_text_after_the_dummy_prefix(name: str) -> None:
    tokens = vocabulary(ALL[name]())
    assert tokens.dummy_prefix
    for text, ids in plain_ids(name):
        if BLOCK not in text:
            assert joined(tokens, ids) == (b" " + text.encode() if text else b"")


@pytest.mark.parametrize("name", ALL)
def test_plain_text_gives_no_special_token(name: str) -> None:
    specials = set(specials_of(name).values())
    for _, ids in plain_ids(name):
        assert not specials & set(ids)


@pytest.mark.parametrize("name", ALL)
def test_special_tokens_are_found_and_are_their_own_text(name: str) -> None:
    tokenizer = ALL[name]()
    tokens = vocabulary(tokenizer)
    specials = specials_of(name)
    for text, token in specials.items():
        assert tokens.token_id(text) == token
        assert tokens.token_bytes(token) == text.encode()
    assert real.encode(tokenizer, "".join(specials)) == list(specials.values())


@pytest.mark.parametrize("name", ALL)
def test_ids_outside_the_vocabulary_give_none(name: str) -> None:
    tokens = vocabulary(ALL[name]())
    for token in (-1, -(2**70), 1_000_000, 2**31, 2**63, 2**70):
        assert tokens.token_bytes(token) is None


@pytest.mark.parametrize("name", ALL)
def test_every_id_has_bytes_and_is_found_by_them(name: str) -> None:
    tokens = vocabulary(ALL[name]())
    known = 0
    for token in range(0, 160_000, 7):
        data = tokens.token_bytes(token)
        if data is None:
            continue
        known += 1
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue
        found = tokens.token_id(text)
        assert found is not None
        assert tokens.token_bytes(found) == data  # two tokens may stand for the same bytes: a piece, and a spelt byte
    assert known > 4_000


# Ids


@pytest.mark.parametrize("name", ALL)
@thorough
@given(text=st.one_of(TEXTS, st.text(max_size=3), st.text(st.characters(), max_size=2)))
def test_an_id_found_for_a_text_has_its_bytes(name: str, text: str) -> None:
    tokens = vocabulary(ALL[name]())
    token = tokens.token_id(text)
    if token is not None:
        assert tokens.token_bytes(token) == text.encode()


@pytest.mark.parametrize("name", ALL)
def test_ordinary_tokens_are_found_by_their_text(name: str) -> None:
    tokens = vocabulary(ALL[name]())
    for text in ("a", " the", "ing", "\n", "{", " "):
        token = tokens.token_id(text)
        assert token is not None
        assert tokens.token_bytes(token) == text.encode()
    assert tokens.token_id("no single token says all this") is None
    assert tokens.token_id("\ud800") is None
    assert tokens.token_id("") is None


def test_spelling_is_not_text() -> None:
    for name in ("step-audio-2 huggingface", "qwen3"):
        assert vocabulary(ALL[name]()).token_id("Ġthe") is None
    for name in PREFIXED:
        assert vocabulary(ALL[name]()).token_id(f"{BLOCK}the") is None
        assert vocabulary(ALL[name]()).token_id("<0x0A>") is None


def test_a_letter_is_its_piece_rather_than_its_byte() -> None:
    for name in PREFIXED:
        tokenizer = ALL[name]()
        assert vocabulary(tokenizer).token_id("a") == real.encode_plain(tokenizer, "\na")[-1]


# What each tokenizer is like


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("mistral 1", 1),
        ("mistral 2", 2),
        ("mistral 3", 3),
        ("mistral 3 tekken", 3),
        ("mistral 7", 7),
        ("mistral 7 tekken", 7),
        ("mistral 11", 11),
        ("mistral 13", 13),
        ("qwen3", None),
        ("mistral 1 huggingface", None),
        ("step-audio-2 tiktoken", None),
        ("step-audio-2 huggingface", None),
    ],
)
def test_version_and_dummy_prefix(name: str, version: int | None) -> None:
    tokens = vocabulary(ALL[name]())
    assert tokens.version == version
    assert tokens.dummy_prefix is (name in PREFIXED)


def test_mistral_control_tokens() -> None:
    later = {"[ARGS]": {11: 32, 13: 32}, "[CALL_ID]": {11: 33, 13: 33}, "[THINK]": {13: 34}, "[/THINK]": {13: 35}}
    for version in (3, 7, 11, 13):
        tokens = vocabulary(real.mistral(version, tekken=True))
        assert tokens.token_id("[TOOL_CALLS]") == 9
        for text, ids in later.items():
            assert tokens.token_id(text) == ids.get(version)
    for version in (2, 3, 7):
        assert vocabulary(real.mistral(version)).token_id("[TOOL_CALLS]") == 5
    assert vocabulary(real.mistral(1)).token_id("[TOOL_CALLS]") is None


WHISPERS = [pytest.param(real.whisper, marks=pytest.mark.system), real.whisper_like]


@pytest.mark.parametrize("tokenizer", WHISPERS)
def test_whisper_languages_tasks_and_times(tokenizer: Callable[[], Any]) -> None:
    tokens = vocabulary(tokenizer())
    texts = ("<|endoftext|>", "<|de|>", "<|su|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>", "<|0.00|>")
    assert [tokens.token_id(text) for text in texts] == [50257, 50261, 50357, 50358, 50359, 50363, 50364]
    assert tokens.token_bytes(51864) == b"<|30.00|>"
    assert tokens.token_id("<|xx|>") is None


@pytest.mark.system
@pytest.mark.parametrize(("name", "made"), [("qwen3", real.qwen3_huggingface), ("llama2", real.mistral_1_huggingface)])
def test_what_the_tests_make_is_what_is_published(name: str, made: Callable[[], Any]) -> None:
    assert json.loads(made().to_str()) == json.loads(real.published(name).to_str())


@pytest.mark.system
def test_the_configuration_of_qwen3_is_what_is_published() -> None:
    assert real.qwen3_config() == real.npm_config("qwen3")


@pytest.mark.parametrize("kind", ["tiktoken", "huggingface"])
def test_step_audio_2_tables(kind: real.Kind) -> None:
    released = vocabulary(real.step_audio_2("released", kind))
    shifted = vocabulary(real.step_audio_2("shifted", kind))
    for tokens in (released, shifted):
        assert tokens.token_id("<tool_call>") == 151657
        assert tokens.token_id("<|EOT|>") == 151665
        assert tokens.token_id("<think>") is tokens.token_id("</think>") is None
        assert tokens.token_bytes(151646) is None  # an id between the added tokens that none of them has
    ids = [released.token_id(text) for text in ("<tts_pad>", "<audio_0>", "<audio_6560>", "<audio_6561>")]
    assert ids == [151695, 151696, 158256, 158257]
    ids = [shifted.token_id(text) for text in ("<audio_0>", "<audio_4>", "<tts_pad>", "<audio_5>")]
    assert ids == [151695, 151699, 151700, 151701]
    assert shifted.token_bytes(151700) == b"<tts_pad>"


@thorough
@given(text=TEXTS)
def test_both_kinds_of_step_audio_2_encode_alike(text: str) -> None:
    one, other = real.step_audio_2(kind="tiktoken"), real.step_audio_2(kind="huggingface")
    assert real.encode(one, text) == real.encode(other, text)
    assert real.encode_plain(one, text) == real.encode_plain(other, text)


def test_rebuilt_merges_are_qwens_own() -> None:
    rebuilt = json.loads(real._qwen_tokenizer_json())["model"]
    released = json.loads(real.qwen3_huggingface().to_str())["model"]
    assert rebuilt["merges"] == [list(merge) for merge in released["merges"]]
    assert rebuilt["vocab"] == released["vocab"]


def test_mistral_1_is_the_same_from_either_library() -> None:
    one, other = vocabulary(real.mistral(1)), vocabulary(real.mistral_1_huggingface())
    assert [one.token_bytes(token) for token in range(32_001)] == [other.token_bytes(token) for token in range(32_001)]
    texts = [data.decode(errors="ignore") for token in range(32_000) if (data := one.token_bytes(token))]
    assert [one.token_id(text) for text in texts] == [other.token_id(text) for text in texts]


# Hugging Face tokenizers of other builds


def made(model: dict[str, Any], added: dict[str, bool] | None = None, **parts: Any) -> tokenizers.Tokenizer:
    """A tokenizer of the given parts, with added tokens that are special or not."""
    tokenizer = tokenizers.Tokenizer.from_str(
        json.dumps({"version": "1.0", "added_tokens": [], "model": model} | parts)
    )
    for text, special in (added or {}).items():
        tokenizer.add_tokens([tokenizers.AddedToken(text, special=special, normalized=False)])
    return tokenizer


METASPACE = {"type": "Metaspace", "replacement": BLOCK, "prepend_scheme": "always", "split": True}
GEMMA = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": BLOCK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
PIECES = {"<unk>": 0, f"{BLOCK}a": 1, BLOCK * 2: 2, "<0x0A>": 3, "##b": 4, "c": 5, "d</w>": 6, "Ġe": 7}
WORDS = {"type": "WordLevel", "vocab": PIECES, "unk_token": "<unk>"}


def test_metaspace() -> None:
    tokens = vocabulary(made(WORDS, decoder=METASPACE))
    assert tokens.dummy_prefix
    assert tokens.token_bytes(1) == b" a"
    assert tokens.token_id(" a") == 1
    assert not vocabulary(made(WORDS, decoder=METASPACE | {"prepend_scheme": "never"})).dummy_prefix


def test_pieces_listed_as_added_tokens_are_spelt_as_pieces() -> None:
    tokens = vocabulary(made(WORDS, {BLOCK * 2: False, f"<{BLOCK}>": True, f"{BLOCK}a": True}, decoder=GEMMA))
    assert not tokens.dummy_prefix
    assert tokens.token_bytes(2) == b"  "
    assert tokens.token_id("  ") == 2
    assert tokens.token_bytes(3) == b"\n"
    assert tokens.token_id("\n") == 3
    assert tokens.token_bytes(8) == f"<{BLOCK}>".encode()  # the model has no such piece
    assert tokens.token_bytes(1) == f"{BLOCK}a".encode()  # special


def test_wordpiece_and_word_ends() -> None:
    tokens = vocabulary(made(WORDS, {"[CLS]": True}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}))
    assert [tokens.token_bytes(token) for token in (5, 4, 8)] == [b" c", b"b", b"[CLS]"]
    assert [tokens.token_id(text) for text in (" c", "b", "[CLS]", "c", "##b")] == [5, 4, 8, None, None]
    assert tokens.dummy_prefix
    tokens = vocabulary(made(WORDS, decoder={"type": "BPEDecoder", "suffix": "</w>"}))
    assert (tokens.token_bytes(6), tokens.token_id("d ")) == (b"d ", 6)


def test_without_a_decoder_the_pre_tokenizer_tells() -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    assert vocabulary(made(WORDS, pre_tokenizer=byte_level)).token_bytes(7) == b" e"
    assert vocabulary(made(WORDS, pre_tokenizer=METASPACE)).token_id(" a") == 1
    tokens = vocabulary(made(WORDS))
    assert tokens.token_bytes(7) == "Ġe".encode()
    assert tokens.token_id("Ġe") == 7
    assert not tokens.dummy_prefix


def test_where_an_id_has_two_names_the_tokenizers_own_wins() -> None:
    tokenizer = made(WORDS | {"vocab": PIECES | {"also c": 5}})
    tokens = vocabulary(tokenizer)
    name = tokenizer.id_to_token(5)
    assert name is not None
    assert tokens.token_bytes(5) == name.encode()
    assert tokens.token_id(name) == 5


def test_tokens_added_later_are_seen() -> None:
    tokenizer = made(WORDS, decoder=METASPACE)
    tokens = vocabulary(tokenizer)
    assert tokens.token_bytes(8) is None
    tokenizer.add_tokens(["<late>"])
    assert tokens.token_bytes(8) == vocabulary(tokenizer).token_bytes(8) == b"<late>"
    assert tokens.token_id("<late>") == 8


def test_a_decoder_that_does_not_tell_its_state_is_found_in_the_whole() -> None:
    fast = made(WORDS, decoder=METASPACE)
    names = ("token_to_id", "id_to_token", "model", "pre_tokenizer", "get_added_tokens_decoder", "to_str")
    mute = SimpleNamespace(decoder=object(), **{name: getattr(fast, name) for name in names})
    assert vocabulary(mute).token_bytes(1) == b" a"


# What is accepted


def test_wrappers_are_unwrapped() -> None:
    mistral = real.mistral(3)
    for tokenizer in (mistral, mistral.instruct_tokenizer, mistral.instruct_tokenizer.tokenizer):
        assert vocabulary(tokenizer).token_id("[TOOL_CALLS]") == 5
    fast = SimpleNamespace(backend_tokenizer=real.mistral_1_huggingface())
    assert vocabulary(fast).token_id("<s>") == 1


def test_a_fast_tokenizer_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=real.mistral_1_huggingface())
    tokens = vocabulary(fast)
    assert tokens.token_id("<s>") == 1
    assert joined(tokens, fast.encode("Hi 🦙", add_special_tokens=False)) == " Hi 🦙".encode()


def test_a_vocabulary_is_returned_as_it_is() -> None:
    tokens = vocabulary(real.mistral(3))
    assert vocabulary(tokens) is tokens


@pytest.mark.parametrize("wrong", [None, 3, "qwen", object(), {}, tiktoken.Encoding, SimpleNamespace(tokenizer=None)])
def test_other_objects_are_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"tokenizers\.Tokenizer.*tiktoken\.Encoding.*mistral-common.*was given"):
        vocabulary(wrong)


def test_the_refusal_names_what_was_given() -> None:
    with pytest.raises(TypeError, match=r"given an object of type str$"):
        vocabulary("Qwen/Qwen3-8B")
    with pytest.raises(TypeError, match=r"given the class tiktoken\.core\.Encoding itself$"):
        vocabulary(tiktoken.Encoding)
    endless = SimpleNamespace()
    endless.tokenizer = endless
    with pytest.raises(TypeError, match=r"given an object of type types\.SimpleNamespace$"):
        vocabulary(endless)


# Keeping


def test_the_work_is_done_once_and_forgotten_with_the_tokenizer() -> None:
    assert vocabulary(real.mistral(3)) is vocabulary(real.mistral(3))
    tokenizer = made(WORDS, decoder=METASPACE)
    tokens: Any = vocabulary(tokenizer)
    again: Any = vocabulary(tokenizer)
    assert tokens._decoding is again._decoding
    gone = weakref.ref(tokenizer)
    del tokenizer, tokens, again
    gc.collect()
    assert gone() is None
