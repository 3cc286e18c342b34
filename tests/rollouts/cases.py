"""The templates of the vendors with tokenizers that have their tokens, and what a model of them may have sampled."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from hypothesis import strategies as st

import unbraid
from unbraid.core.grammar import Format
from unbraid.templates import ChatTemplate
from unbraid.templates.control_tokens import ControlTokens, mark_grammar
from unbraid.templates.detection import detect
from unbraid.templates.prompt.encoders import Encoder, encoder

from ..support import real_tokenizers
from ..support.strategies import hostile, messages
from ..templates.prompt_cases import NEEDS, TOOLS
from ..templates.prompt_models import ALL_TEMPLATES, template_source
from .further import further_templates, templates_of_folder

_TOKEN = re.compile(
    r"<[|｜][^<>\s'\"{}]+?[|｜]?>|</?[a-z_:]+[|]?>|\[/?[A-Z_]+\]|<\|\"\|>|<[A-Z]+_\d+>|\]~b\]|\[e~\[|\]<\]minimax\[>\[|</?s>"
)
"""What looks like a token in the text of a template."""
TEMPLATES = ALL_TEMPLATES
KINDS = ("bytes", "bpe")
_CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Good day."},
    {"role": "user", "content": "And?"},
]


def source(name: str) -> str:
    """A template out of the shared data, or a further one, whose name begins with its collection."""
    if ": " not in name:
        return template_source(name)
    return templates_of_folder().get(name) or further_templates()[name]


@cache
def tokens_of(name: str) -> tuple[str, ...]:
    """What may be a token in a template, or in what it writes: some put their tokens together from pieces."""
    written = [source(name)]
    variables: dict[str, Any] = dict(NEEDS.get(name, {}))
    with suppress(unbraid.UnbraidError):
        written.append(template(name).render(_CONVERSATION, TOOLS, **variables))
    found = dict.fromkeys(text for each in written for text in _TOKEN.findall(each))
    return tuple(dict.fromkeys([*found, "<s>", "</s>"]))


class ByteTokenizer:
    """A vocabulary in which every byte is a token, and so are the tokens that are given."""

    version = None
    dummy_prefix = False

    def __init__(self, added: Sequence[str]) -> None:
        self._added = {text: 256 + number for number, text in enumerate(added)}
        self._texts = {id: text.encode() for text, id in self._added.items()}
        self.size = 256 + len(added)
        self.special = frozenset(self._texts)

    def token_id(self, text: str) -> int | None:
        data = text.encode()
        return self._added.get(text, data[0] if len(data) == 1 else None)

    def token_bytes(self, token: int) -> bytes | None:
        return bytes([token]) if 0 <= token < 256 else self._texts.get(token)

    def encode(self, text: str, special: bool) -> list[int]:
        assert not special, "text of messages must never be read for special tokens"
        return list(text.encode())


@cache
def tokenizer(name: str, kind: str) -> Any:
    if kind == "bytes":
        return ByteTokenizer(tokens_of(name))
    return _with_all_tokens()


@cache
def _with_all_tokens() -> Any:
    """Qwen's vocabulary with the tokens of all templates: the vendors' own are in no package."""
    return real_tokenizers.qwen3_with(*dict.fromkeys(text for name in TEMPLATES for text in tokens_of(name)))


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(source(name), bos_token="<s>", eos_token="</s>", name=name)


@cache
def format_of(name: str) -> Format:
    """The format that detection finds, or would guess: the templates of some models do not write their calls."""
    detected = detect(template(name))
    return detected.format or detected.required()


@cache
def renderer(name: str, kind: str) -> unbraid.Renderer:
    """Renderers of one vocabulary share its encoder: to copy a tokenizer takes longer than all else."""
    variables: dict[str, Any] = dict(NEEDS.get(name, {}))
    return unbraid.renderer(template(name), encoding_of(name, kind), format_of(name), **variables)


# What a model may have sampled


@st.composite
def sampled_text(draw: st.DrawFn, format: Format, controls: ControlTokens) -> str:
    """A turn as a model may write it, well or badly, with its tokens marked."""
    if draw(st.booleans()):
        return controls.mark(draw(hostile(format)))
    return unbraid.render(mark_grammar(format, controls), draw(messages(format)))


@st.composite
def in_other_tokens(draw: st.DrawFn, text: str, encoding: Encoder) -> list[int]:
    """The ids of a marked text, in pieces that no tokenizer would cut it into."""
    ids: list[int] = []
    for segment, control in encoding.controls.split(text):
        if control:
            ids.append(encoding.controls.ids[segment])
            continue
        cuts = sorted(draw(st.sets(st.integers(0, len(segment)), max_size=4)))
        for begin, end in zip([0, *cuts], [*cuts, len(segment)], strict=True):
            ids += encoding.encode(segment[begin:end]) if begin < end else []
    return ids


@st.composite
def sampled_ids(draw: st.DrawFn, made: unbraid.Renderer, encoding: Encoder) -> list[int]:
    """What was sampled: ended by a stop token, or cut off."""
    text = draw(sampled_text(made.format, encoding.controls))
    ids = [id for id in draw(in_other_tokens(text, encoding)) if id not in made.stop_ids]
    if draw(st.integers(0, 3)):
        return [*ids, draw(st.sampled_from(made.stop_ids))]
    return ids[: draw(st.integers(0, len(ids)))]


def encoding_of(name: str, kind: str) -> Encoder:
    return _encoder(name if kind == "bytes" else "", kind)


@cache
def _encoder(name: str, kind: str) -> Encoder:
    return encoder(tokenizer(name, kind))


__all__ = ["KINDS", "NEEDS", "TEMPLATES", "TOOLS", "encoding_of", "format_of", "renderer", "sampled_ids", "template"]
