"""Token boundaries: of a served model's tokenizer or, where there is none, about where a tokenizer would cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.vocabulary import Vocabulary
from ...errors import UnbraidError
from .question import Question

if TYPE_CHECKING:  # it comes with the server's packages; in a browser there are no models
    from ..model import Model

_PIECES = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{2,30}\]| ?[^\W\d_]{1,6}| ?\d{1,3}| ?[^\w\s]{1,3}|\s+|_|.", re.DOTALL)
"""A marker; a word or a part of one, with the space before it; a few digits or signs; whitespace."""


def cut(question: Question, models: Mapping[str, Model]) -> dict[str, Any]:
    """Where the tokens of a text end, in characters, whose tokens they are, and their ids."""
    text = question.text("text")
    model = models.get(question.text("model"))
    if model is not None and model.vocabulary is not None:
        ids = list(model.encode_output(text))
        ends = _ends(model.vocabulary, ids)
        if ends and ends[-1] == len(text):
            return {"cuts": ends[:-1], "by": question.text("model"), "ids": ids}
    return {"cuts": [piece.end() for piece in _PIECES.finditer(text)][:-1], "by": None, "ids": []}


def spelled(question: Question, models: Mapping[str, Model]) -> dict[str, Any]:
    """The text of each token that a model has written, and the text of all."""
    name = question.text("model")
    model = models.get(name)
    if model is None or model.vocabulary is None:
        raise UnbraidError(f"only the engine knows the tokens of {name!r}: start the server with --tokenizer")
    ids = question.numbers("ids")
    tokens = [model.vocabulary.token_bytes(id) for id in ids]
    texts = [
        f"token {id}" if one is None else one.decode("utf-8", "replace") for id, one in zip(ids, tokens, strict=True)
    ]
    return {"tokens": texts, "text": b"".join(one or b"" for one in tokens).decode("utf-8", "replace")}


def _ends(vocabulary: Vocabulary, ids: Iterable[int]) -> list[int]:
    """The ends of tokens that end a character, as numbers of characters. None where a token is unknown."""
    ends: list[int] = []
    data = b""
    at = 0
    for id in ids:
        token = vocabulary.token_bytes(id)
        if token is None:
            return []
        data += token
        try:
            at += len(data.decode())
        except UnicodeDecodeError:
            continue  # it ends inside of a character
        data = b""
        ends.append(at)
    return ends
