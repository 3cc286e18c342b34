"""Encoders: rendered text to token ids. A marked control token becomes that token, and no other text ever does.

Tokenizers look for special tokens in all of their input and cannot be told which occurrences are real. Two ways around
it: `SegmentEncoder` encodes the segments between control tokens one by one, as plain text; `HuggingFaceEncoder` encodes
the prompt as a whole, as Hugging Face does, and hides forged tokens from the tokenizer. Each result is checked: it has
exactly the control tokens that were marked.
"""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol, cast, runtime_checkable

from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from ...tokens import vocabulary as vocabulary_of
from ..control_tokens import ControlTokens, control_tokens_of, is_control, unmark
from ..errors import PromptError

_DROPPED_EARLY = "\ufdd0"
"""A noncharacter, never in real text: it hides a token until the normaliser drops it."""
_DROPPED_LATE = "\ufdd1"
"""Another one: it hides a token until the pre-tokenizer drops it."""
_OF_ONE_TEXT = frozenset({"NFC", "NFD", "NFKC", "NFKD", "ByteLevel", "Split", "Digits", "Punctuation"})
"""Steps of a tokenizer that look at one text at a time, wherever it stands."""
_REMEMBERED, _LONGEST_REMEMBERED = 512, 32_768
"""How many texts between control tokens are remembered, and of how many characters: 80 MB at the very most."""
_SEPARATE = "☺"
"""A character that no token shares with its neighbours."""


@runtime_checkable
class Encoder(Protocol):
    """Encodes what a template rendered."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def controls(self) -> ControlTokens:
        """The tokens that a template may write and a message may not."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of a text whose control tokens are marked (`ControlTokens.mark`). Nothing is added at its ends."""
        ...


_SEPARATE = "☺"
"""A character that no token shares with its neighbours."""


def encode_inside(encoder: Encoder, text: str) -> tuple[int, ...]:
    """The ids of a text that has another before it. SentencePiece would begin it with a space of its own."""
    if not encoder.vocabulary.dummy_prefix:
        return tuple(encoder.encode(text))
    before, both = encoder.encode(_SEPARATE), encoder.encode(_SEPARATE + text)
    return tuple(both[len(before) :])


class TextEncoder(Protocol):
    """What an engine must offer if it keeps its tokenizer to itself. It must also be a Vocabulary, or hold one as
    `vocabulary`, and that must know its special tokens (`special`)."""

    def encode(self, text: str, special: bool) -> list[int]:
        """The ids of a text; special tokens are recognised only with `special`. Nothing is added at its ends."""
        ...


def encoder(tokenizer: object) -> Encoder:
    """An Encoder over `tokenizer`, or `tokenizer` itself if it is one.

    Takes what `unbraid.parser` takes as a tokenizer, and any `TextEncoder`. Keep the encoder: making it is not free.
    """
    if isinstance(tokenizer, Encoder) and isinstance(tokenizer.controls, ControlTokens):
        return tokenizer
    held = tokenizer
    for name in ("backend_tokenizer", "instruct_tokenizer", "tokenizer"):
        held = getattr(held, name, held)
    if hasattr(held, "encode_ordinary") and hasattr(held, "encode_single_token"):
        return SegmentEncoder(vocabulary_of(held), cast(Any, held).encode_ordinary)
    if hasattr(held, "get_added_tokens_decoder") and hasattr(held, "pre_tokenizer"):
        return HuggingFaceEncoder(held)
    if hasattr(held, "id_to_piece") and hasattr(held, "n_words"):
        return _mistral(held)
    vocabulary = vocabulary_of(getattr(tokenizer, "vocabulary", tokenizer))
    if not hasattr(tokenizer, "encode"):
        raise UnbraidError(f"{type(tokenizer).__name__} cannot encode text: it needs encode(text, special)")
    return SegmentEncoder(vocabulary, partial(cast(TextEncoder, tokenizer).encode, special=False))


class SegmentEncoder:
    """Encodes each segment between control tokens by itself, as plain text.

    plain: encodes plain text. If it recognises a control token in it nevertheless (llama.cpp does so with tokens that
        users defined), the text is cut inside that token.
    space: whether a space at the beginning of a segment is the one that SentencePiece adds by itself, and a segment
        without one gets none. False: leave it to `plain`.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        plain: Callable[[str], Iterable[int]],
        *,
        controls: ControlTokens | None = None,
        space: bool = False,
        always_space: bool = False,
    ) -> None:
        self.vocabulary = vocabulary
        self.controls = control_tokens_of(vocabulary) if controls is None else controls
        self._control_ids = frozenset(self.controls.ids.values())
        self._plain = plain
        self._space = space
        self._always_space = always_space

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for segment, control in self.controls.split(text):
            if control:
                ids.append(self.controls.ids[segment])
            else:
                ids += self._segment(segment, first=not ids)
        return ids

    def _segment(self, text: str, first: bool) -> list[int]:
        if not self._space:
            return self._checked(text, at_start=True)
        if text.startswith(" ") and len(text) > 1:
            return self._checked(text[1:], True)
        return self._checked(text, first or self._always_space)

    def _checked(self, text: str, at_start: bool) -> list[int]:
        ids = list(self._plain(text)) if at_start else self._without_dummy_prefix(text)
        if self._control_ids.isdisjoint(ids):
            return ids
        return self._cut(text, at_start)

    def _cut(self, text: str, at_start: bool) -> list[int]:
        """A text in which the tokenizer recognises control tokens, cut after the first character of each."""
        ids: list[int] = []
        begin = 0
        for cut in [*(at + 1 for at in self.controls.positions(text)), len(text)]:
            piece = text[begin:cut]
            part = list(self._plain(piece)) if at_start and begin == 0 else self._without_dummy_prefix(piece)
            ids += part
            begin = cut
        if not self._control_ids.isdisjoint(ids):
            raise PromptError(f"the tokenizer takes plain text for control tokens: {text[:80]!r}")
        return ids

    def _without_dummy_prefix(self, text: str) -> list[int]:
        """The ids of a text without the space that SentencePiece puts before it."""
        if not self.vocabulary.dummy_prefix:
            return list(self._plain(text))
        before, both = list(self._plain(_SEPARATE)), list(self._plain(_SEPARATE + text))
        return both[len(before) :] if both[: len(before)] == before else list(self._plain(text))


def _mistral(tokenizer: Any) -> SegmentEncoder:
    """mistral-common's text tokenizers recognise no special tokens. Its instruct tokenizers encode each segment by
    itself, so that with SentencePiece each begins with a space. Templates write that space."""
    vocabulary = vocabulary_of(tokenizer)
    first = vocabulary.version == 1  # [INST] is text here, after a space that no template writes
    return SegmentEncoder(
        vocabulary,
        partial(tokenizer.encode, bos=False, eos=False),
        space=vocabulary.dummy_prefix,
        always_space=first,
    )


class HuggingFaceEncoder:
    """Encodes with a `tokenizers.Tokenizer`, the prompt as a whole. So the tokenizer treats spaces around its tokens,
    and its own prefix, exactly as it does for Hugging Face.

    If a message spells a control token, a noncharacter is put into it. The tokenizer is then a copy that drops this
    character after it has looked for tokens, and before it splits the text.

    Most tokenizers treat what stands between two control tokens as if it stood alone. With these, the ids of what was
    encoded before are looked up: the tools, the system message and the turns before come again with every request.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.vocabulary = vocabulary_of(tokenizer)
        added = dict(tokenizer.get_added_tokens_decoder())
        tokens = {token.content: id for id, token in added.items() if is_control(token.content, token.special)}
        self.controls = ControlTokens(tokens)
        self._control_ids = frozenset(tokens.values())
        self._normalized = {token.content for token in added.values() if token.normalized} & tokens.keys()
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._known = lru_cache(_REMEMBERED)(self._part)

    def __reduce__(self) -> tuple[type[HuggingFaceEncoder], tuple[Any]]:
        return HuggingFaceEncoder, (self._tokenizer,)

    def encode(self, text: str) -> list[int]:
        segments = list(self.controls.split(text))
        if self._parts_stand_alone and (ids := self._by_parts(segments)) is not None:
            return ids
        return self._as_a_whole(text, segments)

    def _as_a_whole(self, text: str, segments: list[tuple[str, bool]]) -> list[int]:
        spelled = any(self.controls.spells(part) for part, control in segments if not control)
        whole = unmark(text)
        expected = [self.controls.ids[part] for part, control in segments if control]
        if spelled or getattr(self._tokenizer, "truncation", None) or getattr(self._tokenizer, "padding", None):
            ids = self._encode_by_copy(segments, whole)
        else:
            ids = self._tokenizer.encode(whole, add_special_tokens=False).ids
        if ids is None or [id for id in ids if id in self._control_ids] != expected:
            return self._segment_encoder.encode(text)
        return list(ids)

    def _by_parts(self, segments: list[tuple[str, bool]]) -> list[int] | None:
        ids: list[int] = []
        for part, control in segments:
            if control:
                ids.append(self.controls.ids[part])
                continue
            part_ids = self._known(part) if len(part) <= _LONGEST_REMEMBERED else self._part(part)
            if part_ids is None:
                return None
            ids += part_ids
        return ids

    def _part(self, text: str) -> array[int] | None:
        """The ids of a text between two control tokens; None where the tokenizer takes some of it for one."""
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return array("i", ids) if self._control_ids.isdisjoint(ids) else None

    @cached_property
    def _parts_stand_alone(self) -> bool:
        """Whether a text between two control tokens has the same ids wherever it stands, as far as the tokenizer
        tells."""
        if getattr(self._tokenizer, "truncation", None) or getattr(self._tokenizer, "padding", None):
            return False
        added = self._tokenizer.get_added_tokens_decoder().values()
        if self._normalized or any(token.lstrip or token.rstrip or token.single_word for token in added):
            return False
        try:
            used = (self._tokenizer.normalizer, self._tokenizer.pre_tokenizer)
            states = [json.loads(each.__getstate__()) for each in used if each is not None]
        except Exception:  # parts that are written in Python
            return False
        steps = [step for each in states for step in _steps(each)]
        return all(step["type"] in _OF_ONE_TEXT and not step.get("add_prefix_space") for step in steps)

    def _encode_by_copy(self, segments: list[tuple[str, bool]], whole: str) -> list[int] | None:
        if _DROPPED_EARLY in whole or _DROPPED_LATE in whole:
            return None
        with self._lock:
            copy = self._copy
        if copy is None:
            return None
        hidden = "".join(part if control else self._hide_tokens(part) for part, control in segments)
        return cast(list[int], copy.encode(hidden, add_special_tokens=False).ids)

    def _hide_tokens(self, text: str) -> str:
        pieces: list[str] = []
        begin = 0
        for at in self.controls.positions(text):
            # Some tokens are looked for in normalised text: they must stay hidden until the normaliser is done.
            covered = any(text.startswith(each, at) for each in self._normalized)
            pieces += [text[begin : at + 1], _DROPPED_LATE if covered else _DROPPED_EARLY]
            begin = at + 1
        return "".join([*pieces, text[begin:]])

    @cached_property
    def _copy(self) -> Any | None:
        try:
            whole = json.loads(self._tokenizer.to_str())
        except Exception:  # a tokenizer with parts written in Python cannot be copied
            return None
        dropped = {"type": "Replace", "pattern": {"String": _DROPPED_EARLY}, "content": ""}
        normalizers = [dropped, *([whole["normalizer"]] if whole.get("normalizer") else [])]
        whole["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
        if self._normalized:
            cut = {"type": "Split", "pattern": {"String": _DROPPED_LATE}, "behavior": "Removed", "invert": False}
            splitters = [cut, *([whole["pre_tokenizer"]] if whole.get("pre_tokenizer") else [])]
            whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splitters}
        whole["truncation"] = whole["padding"] = None
        return type(self._tokenizer).from_str(json.dumps(whole))

    @cached_property
    def _segment_encoder(self) -> SegmentEncoder:
        """The fallback: each segment through the tokenizer's own steps, except the one that looks for tokens."""
        tokenizer = self._tokenizer

        def plain(text: str) -> list[int]:
            if tokenizer.normalizer is not None:
                text = tokenizer.normalizer.normalize_str(text)
            splitter = tokenizer.pre_tokenizer
            parts = [text] if splitter is None else [part for part, _ in splitter.pre_tokenize_str(text)]
            return [piece.id for part in parts if part for piece in tokenizer.model.tokenize(part)]

        return SegmentEncoder(self.vocabulary, plain, controls=self.controls)


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """The steps that a normalizer or pre-tokenizer consists of, by what it is pickled as."""
    if step and step["type"] == "Sequence":
        for each in step.get("normalizers") or step.get("pretokenizers") or ():
            yield from _steps(each)
    elif step:
        yield step
