"""From rendered text to token ids: marked control tokens become these tokens, and nothing else ever does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Protocol, cast, runtime_checkable

from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...tokens import vocabulary as vocabulary_of
from ..errors import PromptError
from ..control_tokens import Controls, controls_of, is_control, unmark

_NOT_TEXT = "\ufdd0"
_NOT_TEXT_EITHER = "\ufdd1"
"""Noncharacters: they are never in real text."""
_APART = "☺"
"""No token goes over its beginning or its end."""


@runtime_checkable
class Encoder(Protocol):
    """Encodes what a template rendered."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def controls(self) -> Controls:
        """The tokens that a template may mean and a message may not."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text whose control tokens are marked (`Controls.mark`). Nothing is added at its ends."""
        ...


class TextEncoder(Protocol):
    """What an engine has to offer that keeps its tokenizer to itself; it must be a Vocabulary too, or hold one as
    `vocabulary`, and that must know its special tokens (`special`)."""

    def encode(self, text: str, special: bool) -> list[int]:
        """The ids of a text, in which special tokens are recognised or not. Nothing is added at its ends."""
        ...


def encoder(tokenizer: object) -> Encoder:
    """An Encoder over `tokenizer`, or `tokenizer` itself where it is one.

    Takes what `unbraid.parser` takes as a tokenizer, and any `TextEncoder`. Keep the encoder: making it is not free.
    """
    if isinstance(tokenizer, Encoder) and isinstance(tokenizer.controls, Controls):
        return tokenizer
    held = tokenizer
    for name in ("backend_tokenizer", "instruct_tokenizer", "tokenizer"):
        held = getattr(held, name, held)
    if hasattr(held, "encode_ordinary") and hasattr(held, "encode_single_token"):
        return Stretches(vocabulary_of(held), cast(Any, held).encode_ordinary)
    if hasattr(held, "get_added_tokens_decoder") and hasattr(held, "pre_tokenizer"):
        return FastEncoder(held)
    if hasattr(held, "id_to_piece") and hasattr(held, "n_words"):
        return _mistral(held)
    vocabulary = vocabulary_of(getattr(tokenizer, "vocabulary", tokenizer))
    if not hasattr(tokenizer, "encode"):
        raise UnbraidError(f"{type(tokenizer).__name__} cannot encode text: it needs encode(text, special)")
    text_encoder = cast(TextEncoder, tokenizer)
    return Stretches(vocabulary, lambda text: text_encoder.encode(text, False))


# Stretch by stretch


class Stretches:
    """Encodes each stretch between control tokens by itself, as plain text.

    plain: the ids of plain text. Where it takes a control token for one nevertheless (llama.cpp does so with tokens
        that users defined), the text is cut in the middle of it.
    space: whether a space at the beginning of a stretch is the one that SentencePiece puts there by itself, and a
        stretch without gets none. False: `plain` knows best.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        plain: Callable[[str], Iterable[int]],
        *,
        controls: Controls | None = None,
        space: bool = False,
        always_space: bool = False,
    ) -> None:
        self.vocabulary = vocabulary
        self.controls = controls_of(vocabulary) if controls is None else controls
        self._control_ids = frozenset(self.controls.ids.values())
        self._plain = plain
        self._space = space
        self._always_space = always_space

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for stretch, control in self.controls.split(text):
            if control:
                ids.append(self.controls.ids[stretch])
            else:
                ids += self._stretch(stretch, first=not ids)
        return ids

    def _stretch(self, text: str, first: bool) -> list[int]:
        if not self._space:
            return self._safe(text, at_start=True)
        if text.startswith(" ") and len(text) > 1:
            return self._safe(text[1:], True)
        return self._safe(text, first or self._always_space)

    def _safe(self, text: str, at_start: bool) -> list[int]:
        ids = list(self._plain(text)) if at_start or not self.vocabulary.dummy_prefix else self._going_on(text)
        if self._control_ids.isdisjoint(ids):
            return ids
        return self._cut(text, at_start)

    def _cut(self, text: str, at_start: bool) -> list[int]:
        """The pieces of a text that the tokenizer reads control tokens into, cut after the first character of each."""
        ids: list[int] = []
        begin = 0
        for cut in [*(at + 1 for at in self.controls.spelled(text)), len(text)]:
            piece = text[begin:cut]
            part = list(self._plain(piece)) if at_start and begin == 0 else self._going_on(piece)
            ids += part
            begin = cut
        if not self._control_ids.isdisjoint(ids):
            raise PromptError(f"the tokenizer takes plain text for control tokens: {text[:80]!r}")
        return ids

    def _going_on(self, text: str) -> list[int]:
        """Without the space that SentencePiece puts before a text."""
        if not self.vocabulary.dummy_prefix:
            return list(self._plain(text))
        before, both = list(self._plain(_APART)), list(self._plain(_APART + text))
        return both[len(before) :] if both[: len(before)] == before else list(self._plain(text))


def _mistral(tokenizer: Any) -> Stretches:
    """mistral-common's text tokenizers know no special tokens in text. Its instruct tokenizers encode what stands
    between them by itself, so that in SentencePiece each begins with a space; templates write that space."""
    vocabulary = vocabulary_of(tokenizer)
    first = vocabulary.version == 1  # here [INST] is text, and there is a space before it that no template writes
    return Stretches(
        vocabulary,
        lambda text: cast(list[int], tokenizer.encode(text, bos=False, eos=False)),
        space=vocabulary.dummy_prefix,
        always_space=first,
    )


# Hugging Face


class FastEncoder:
    """`tokenizers.Tokenizer`. It encodes the prompt as a whole, as it does for Hugging Face: what its tokens do to the
    spaces around them, and where it puts one of its own, is its affair.

    Where a message spells a control token, a noncharacter is put into it, and the tokenizer is a copy that drops this
    character: after it has looked for tokens, and before it looks at the text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.vocabulary = vocabulary_of(tokenizer)
        added = dict(tokenizer.get_added_tokens_decoder())
        tokens = {token.content: id for id, token in added.items() if is_control(token.content, token.special)}
        self.controls = Controls(tokens)
        self._control_ids = frozenset(tokens.values())
        self._normalized = {token.content for token in added.values() if token.normalized} & tokens.keys()
        self._tokenizer = tokenizer
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        stretches = list(self.controls.split(text))
        spelled = any(self.controls.spells(part) for part, control in stretches if not control)
        whole = unmark(text)
        expected = [self.controls.ids[part] for part, control in stretches if control]
        if spelled or getattr(self._tokenizer, "truncation", None) or getattr(self._tokenizer, "padding", None):
            ids = self._by_copy(stretches, whole)
        else:
            ids = self._tokenizer.encode(whole, add_special_tokens=False).ids
        if ids is None or [id for id in ids if id in self._control_ids] != expected:
            return self._stretches.encode(text)
        return list(ids)

    def _by_copy(self, stretches: list[tuple[str, bool]], whole: str) -> list[int] | None:
        if _NOT_TEXT in whole or _NOT_TEXT_EITHER in whole:
            return None
        with self._lock:
            copy = self._copy
        if copy is None:
            return None
        broken = "".join(part if control else self._broken(part) for part, control in stretches)
        return cast(list[int], copy.encode(broken, add_special_tokens=False).ids)

    def _broken(self, text: str) -> str:
        pieces: list[str] = []
        begin = 0
        for at in self.controls.spelled(text):
            # A token that is looked for in normalised text is still looked for when the normaliser is done.
            later = any(text.startswith(each, at) for each in self._normalized)
            pieces += [text[begin : at + 1], _NOT_TEXT_EITHER if later else _NOT_TEXT]
            begin = at + 1
        return "".join([*pieces, text[begin:]])

    @cached_property
    def _copy(self) -> Any | None:
        try:
            whole = json.loads(self._tokenizer.to_str())
        except Exception:  # parts that are written in Python cannot be copied
            return None
        dropped = {"type": "Replace", "pattern": {"String": _NOT_TEXT}, "content": ""}
        normalizers = [dropped, *([whole["normalizer"]] if whole.get("normalizer") else [])]
        whole["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
        if self._normalized:
            cut = {"type": "Split", "pattern": {"String": _NOT_TEXT_EITHER}, "behavior": "Removed", "invert": False}
            splitters = [cut, *([whole["pre_tokenizer"]] if whole.get("pre_tokenizer") else [])]
            whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splitters}
        whole["truncation"] = whole["padding"] = None
        return type(self._tokenizer).from_str(json.dumps(whole))

    @cached_property
    def _stretches(self) -> Stretches:
        """For what is left: each stretch through the tokenizer's own steps, save the one that looks for tokens."""
        tokenizer = self._tokenizer

        def plain(text: str) -> list[int]:
            if tokenizer.normalizer is not None:
                text = tokenizer.normalizer.normalize_str(text)
            splitter = tokenizer.pre_tokenizer
            parts = [text] if splitter is None else [part for part, _ in splitter.pre_tokenize_str(text)]
            return [piece.id for part in parts if part for piece in tokenizer.model.tokenize(part)]

        return Stretches(self.vocabulary, plain, controls=self.controls)
