"""Tokenizers of several libraries, adapted to the one `Vocabulary` that parsers use.

    huggingface.py  `tokenizers` and `transformers`
    tiktoken.py     `tiktoken`
    mistral.py      `mistral-common`
    retokenize.py   bytes spelled in a model's tokens

The libraries are not imported: a tokenizer is recognised by its methods. To support another library, write a module
with an `adapt` function and add it to `_adapters`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

from ..core.vocabulary import TokenizerView, Vocabulary

__all__ = ["vocabulary"]


@cache
def _adapters() -> tuple[Callable[[object], Vocabulary | None], ...]:
    """Loaded when a tokenizer is first used: most parsers read text."""
    from . import huggingface, mistral, tiktoken

    return huggingface.adapt, tiktoken.adapt, mistral.adapt


# A transformers tokenizer holds a fast one, a MistralTokenizer an InstructTokenizer, and that a text tokenizer.
_HOLDERS = ("backend_tokenizer", "instruct_tokenizer", "tokenizer")
_MOST_NESTED = 4


def vocabulary(tokenizer: object) -> Vocabulary:
    """A Vocabulary over `tokenizer`, or `tokenizer` itself if it is one.

    Accepts a `tokenizers.Tokenizer`, a fast tokenizer of transformers, a `tiktoken.Encoding`, and mistral-common's
    `Tekkenizer`, `SentencePieceTokenizer`, `InstructTokenizer` and `MistralTokenizer`. Raises TypeError for others.
    The costly part is done once for each tokenizer object, so you can call this for every request.
    """
    if isinstance(tokenizer, TokenizerView):
        return cast(Vocabulary, tokenizer)
    held: object = tokenizer
    for _ in range(_MOST_NESTED):
        if held is None or isinstance(held, type):  # a class has the methods, but no vocabulary
            break
        if all(hasattr(held, name) for name in ("version", "dummy_prefix", "token_id", "token_bytes")):
            return cast(Vocabulary, held)
        for adapt in _adapters():
            adapted = adapt(held)
            if adapted is not None:
                return adapted
        held = next((getattr(held, name) for name in _HOLDERS if hasattr(held, name)), None)
    raise TypeError(_refusal(tokenizer))


def _refusal(tokenizer: object) -> str:
    kind = tokenizer if isinstance(tokenizer, type) else type(tokenizer)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    received = f"the class {name} itself" if isinstance(tokenizer, type) else f"an object of type {name}"
    return (
        "vocabulary() takes a tokenizers.Tokenizer, a fast tokenizer of transformers, a tiktoken.Encoding, one of "
        "mistral-common's tokenizers (Tekkenizer, SentencePieceTokenizer, InstructTokenizer, MistralTokenizer), or an "
        f"object with version, dummy_prefix, token_id and token_bytes; it was given {received}"
    )
