"""Whisper on SGLang, as a listener: the language is detected in the request that transcribes.

SGLang's `/v1/audio/transcriptions` gives text only; it takes no candidates for the language, does not translate, and
has no times in a stream. So this uses `/generate`, as SGLang's endpoint does itself to detect the language: with
`_detect_language` the decoder gets `<|startoftranscript|>` alone, and a grammar constrains what comes next. Checked
against the source of SGLang 0.5.23.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Unpack

from ...constraints.constraint import Constraint
from ...constraints.language import OutputLanguage, Rule, TextExcept, Token, one_token
from ...constraints.printers.token_sets import TokenSets
from ...engines.base import Audio, Generation, Piece, Sampling, Unsupported
from ...engines.routing import Routing
from ...engines.server import ServerOptions
from ...engines.sglang import SGLangServer
from ...schema.regular import Repeat, Verbatim, all_but, maybe, sequence
from ..audio.pcm import as_wav
from ..listening import EndReason, ListenEnd, ListenRequest
from ..whisper.rules import WhisperRules
from ..whisper.tokens import WhisperTokens, WhisperVocabulary
from .remote import ReceivedTokens, RemoteListener

_CONTEXT = 448  # tokens, in every Whisper
_LATEST_FIRST = 1.0  # seconds: the latest first timestamp
_NEVER = -100.0


class SGLangWhisper(RemoteListener):
    """A Whisper on one or more SGLang servers with the default grammar backend, xgrammar.

    tokenizer: the model's.
    generation_config: the contents of its file of that name; it lists tokens that are never written.

    Of Whisper's rules, a grammar and a logit bias enforce these: the prefix, no other special tokens, timestamps in
    pairs, and the tokens that are never written. That timestamps never go back is left to the model. The probability
    of silence is not known. With a temperature, SGLang's logprobs include it.
    """

    takes = ListenRequest

    def __init__(
        self,
        urls: str | Sequence[str],
        tokenizer: object,
        *,
        generation_config: Mapping[str, Any] | None = None,
        parallel: int = 8,
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        self.vocabulary = vocabulary = WhisperVocabulary(tokenizer)
        self._rules = WhisperRules.of(vocabulary, {}, generation_config or {})
        options = {**options, "vocabulary": vocabulary, "context": _CONTEXT}
        super().__init__(urls, lambda url: _WhisperServer(url, "ebnf", **options), parallel, routing)
        self._biases = dict.fromkeys((token for token in self._rules.suppressed if token < self._rules.end), _NEVER)

    def generation(self, request: ListenRequest) -> Generation:
        tokens = self._rules.tokens
        room = _CONTEXT - len(request.prompt)
        seed = None if request.temperature <= 0 else request.seed or 0  # the same each time
        return Generation(
            prompt="",  # SGLang makes the decoder's prompt itself
            sampling=Sampling(temperature=request.temperature, seed=seed, logit_bias=self._biases),
            max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
            stop_tokens=(tokens.eot,),
            constraint=_constraint(request.prefix, tokens if request.timestamps else None),
            logprobs=0,
            audio=(Audio(as_wav(request.samples), "wav"),),
        )

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`. It ends here where it begins to loop."""
        if request.prompt != (self._rules.tokens.sot,):
            raise Unsupported("prompt: SGLang's Whisper takes none; leave it out")
        received = ReceivedTokens(request.prefix, self._rules.end)
        reason: EndReason = "loop"
        async with aclosing(super().listen(request)) as outputs:
            async for output in outputs:
                if isinstance(output, ListenEnd):
                    reason = output.reason
                    continue
                yield received.take(output.logprobs)
                if received.looping:
                    break
        yield ListenEnd(reason, len(request.prompt), len(received.all), None, received.choice)


class _WhisperServer(SGLangServer):
    def body(self, request: Generation) -> dict[str, Any]:
        body = super().body(request)
        body["sampling_params"]["_detect_language"] = True  # the prompt is <|startoftranscript|> alone
        return {**body, "modalities": ["audio"]}


# The grammar


@lru_cache(64)
def _constraint(prefix: TokenSets, timed: WhisperTokens | None) -> Constraint:
    """The prefix, then text without special tokens; with timestamps, these around each stretch of text."""
    begins = [_one_of(some) for some in prefix.sets]
    text = TextExcept(("<|", _cache_buster(prefix)))
    if timed is None:
        return Constraint(OutputLanguage(sequence(*begins, text), {}))
    first, latest, last = timed.first_timestamp, timed.timestamp(_LATEST_FIRST), timed.last_timestamp
    time, words = Rule("time"), sequence(all_but("<"), text)
    stretches = sequence(words, Repeat(sequence(time, time, words)), maybe(time, maybe(time)))
    root = sequence(*begins, _one_of(range(first, latest + 1)), maybe(stretches))
    return Constraint(OutputLanguage(root, {"time": _one_of(range(first, last + 1))}))


def _cache_buster(prefix: TokenSets) -> str:
    """A word of private-use characters, different for each prefix. xgrammar caches compiled grammars and, up to 0.2.8,
    confuses those that differ only in their token ids. This word, forbidden in the text, makes them differ."""
    spelled = ";".join(",".join(map(str, sorted(some))) for some in prefix.sets)
    return "".join(chr(0xE000 + byte) for byte in hashlib.sha256(spelled.encode()).digest()[:8])


def _one_of(tokens: Collection[int]) -> Token:
    """One of these tokens, by id: the grammar does not spell them."""
    return one_token(tokens, Verbatim(""))
