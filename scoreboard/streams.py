"""Messages as tokens, cut into deltas: all at once, one token each, two to six, and at random.

Vendors' own vocabularies are in no package for most formats, so Qwen's stands in, with the format's markers as tokens.
What a value or an answer quotes is in ordinary tokens, as a model writes it. The texts of all deltas together are the
output, markers included, as a server shows it to its parsers; the token that ends the turn has an id and no text.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import random
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers

import unbraid
from tests.formats.vendors.turns import USER
from tests.support.places import SHARED
from tests.support.real_tokenizers import encode, encode_plain, qwen3_with
from tests.support.strategies import literals_of, markers_of
from unbraid.tokens import vocabulary

from .corpus import KINDS, SEED, TOOLS, Meant, messages, templates_of

CUTS = ("whole", "tokens", "few", "random")
_SPECIAL = re.compile(r"<\|[^|]+\|>|<｜[^｜]+｜>|\[/?[A-Z_]+\]|</?[a-z]+\|[a-z_]+>|</?arg_(?:key|value)>|<escape>")
"""What is a token of its own wherever it stands in a format."""
_TOKEN = re.compile(r"</?[^\s<>=]+>|\[/?[A-Z_]+\]|<\|[^|]+\|>|<｜[^｜]+｜>|｜DSML｜|\]<\]minimax\[>\[|\[e~\[|<\|\"\|>")


@dataclass(frozen=True)
class Stream:
    """A message, or the beginning of one, as the tokens that a model writes for it."""

    meant: Meant
    ids: list[int]
    texts: list[str]
    """What each token adds to the output; a character in several tokens comes with its last."""
    cut_off: bool

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def sizes(self, cut: str, seed: int = SEED) -> list[int] | None:
        """How many tokens each delta has; None for the whole."""
        if cut == "whole":
            return None
        if cut == "tokens":
            return [1] * len(self.ids)
        rng = random.Random(f"{seed}:{self.meant.name}:{cut}")
        sizes, left = [], len(self.ids)
        while left > 0:
            size = min(left, rng.randint(2, 6) if cut == "few" else rng.choice([1, 1, 2, 3, 7, 20, 50]))
            sizes.append(size)
            left -= size
        return sizes

    def job(self, folder: Path, cuts: tuple[str, ...] = CUTS, seed: int = SEED) -> dict[str, Any]:
        """What an adapter is told."""
        meant = self.meant
        tokenizer = tokenizer_of(meant.format)
        end = tokenizer.token_to_id(meant.end) if meant.end and not self.cut_off else None
        return {
            "name": meant.name,
            "format": meant.format,
            "tools": TOOLS,
            "thinking": bool(meant.turn.reasoning),
            "prompt": meant.prompt,
            "prompt_ids": encode(tokenizer, meant.prompt),
            "ids": self.ids,
            "texts": self.texts,
            "end": end,
            "end_text": meant.end if end is not None else "",
            "ends": ends_of(meant.format),
            "messages": [USER],
            "template": "" if meant.source == "ours" else str(SHARED / "templates" / f"{meant.source}.jinja"),
            "template_options": dict(meant.options),
            "cut_off": self.cut_off,
            "cuts": {cut: self.sizes(cut, seed) for cut in cuts},
            "tokenizer": str(tokenizer_file(meant.format, folder)),
        }


SPELLED = {
    "olmo-3": ("<think>", "</think>"),
    "hunyuan-a13b": ("<think>", "</think>", "<answer>", "</answer>"),
}
"""Markers that the family's vocabulary has no tokens for."""


@cache
def tokenizer_of(name: str) -> tokenizers.Tokenizer:
    """Qwen's tokens, and the markers of the format."""
    format = unbraid.find(name)
    starts = [one for template in templates_of(name) for start in template.starts for one in _TOKEN.findall(start)]
    markers = [one for literal in [*markers_of(format), *format.ends] for one in _TOKEN.findall(literal)]
    inside = [one for literal in literals_of(format) for one in _SPECIAL.findall(literal)]
    tokenizer = qwen3_with(*dict.fromkeys([*markers, *inside, *ends_of(name), *starts]))
    return _without(tokenizer, SPELLED[name]) if name in SPELLED else tokenizer


def _without(tokenizer: tokenizers.Tokenizer, tokens: tuple[str, ...]) -> tokenizers.Tokenizer:
    fields = json.loads(tokenizer.to_str())
    fields["added_tokens"] = [one for one in fields["added_tokens"] if one["content"] not in tokens]
    return tokenizers.Tokenizer.from_str(json.dumps(fields))


def ends_of(name: str) -> list[str]:
    """The tokens that may end a turn."""
    ends = [end.strip() for template in templates_of(name) for end in template.ends if end.strip()]
    return ends or [end.strip() for end in unbraid.find(name).ends if end.strip()]


def tokenizer_file(name: str, folder: Path) -> Path:
    """That tokenizer as a file, named by what is in it."""
    text = _tokenizer_json(name)
    path = folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{threading.get_ident()}.part")  # another peer's thread may look for it now
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    return path


@cache
def _tokenizer_json(name: str) -> str:
    return str(tokenizer_of(name).to_str())


def streams(name: str, count: int, kinds: tuple[str, ...] = tuple(KINDS), seed: int = SEED) -> Iterator[Stream]:
    """All streams of a format."""
    for kind in kinds:
        for meant in messages(name, kind, count, seed):
            stream = stream_of(meant, seed)
            if stream is not None:
                yield stream


def stream_of(meant: Meant, seed: int = SEED) -> Stream | None:
    """The message as tokens; None where the tokens do not spell it."""
    ids = _encoded(meant)
    texts = _texts(meant.format, ids)
    if "".join(texts) != meant.text:
        return None
    if meant.kind != "cut-off":
        return Stream(meant, ids, texts, cut_off=False)
    count = random.Random(f"{seed}:{meant.name}:end").randint(1, max(1, len(ids) - 1))
    while count > 1 and not texts[count - 1]:  # in the middle of a character
        count -= 1
    return Stream(meant, ids[:count], texts[:count], cut_off=True)


def _encoded(meant: Meant) -> list[int]:
    tokenizer = tokenizer_of(meant.format)
    quoted = [one for one in meant.plain if one in meant.text]
    if not quoted:
        return encode(tokenizer, meant.text)
    ids: list[int] = []
    for at, part in enumerate(re.split(f"({re.escape(quoted[0])})", meant.text)):
        ids += encode_plain(tokenizer, part) if at % 2 else encode(tokenizer, part)
    return ids


def _texts(name: str, ids: list[int]) -> list[str]:
    tokens, decoder = vocabulary(tokenizer_of(name)), codecs.getincrementaldecoder("utf-8")("replace")
    return [decoder.decode(tokens.token_bytes(id) or b"") for id in ids]
