"""Whisper on SGLang, as a listener: the language is chosen in the request that transcribes.

SGLang's own `/v1/audio/transcriptions` knows no candidates for the language, no translation and no times in a stream,
and gives text. So `/generate` is asked, as SGLang's endpoint asks it itself where it detects the language: with
`_detect_language`, the decoder is given `<|startoftranscript|>` alone, and a grammar says what comes next. Checked
against the source of SGLang 0.5.23.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Unpack

from ...constraints.constraint import Constraint
from ...constraints.dialects.token_sets import TokenSets
from ...constraints.language import Language, Rule, TextExcept, Token, one_token
from ...core.vocabulary import Vocabulary
from ...engines.base import Audio, EngineFailed, Finish, Generation, Load, Piece, Sampling, Unsupported
from ...engines.routing import Routing
from ...engines.server import ServerOptions, Servers
from ...engines.sglang import SGLangServer
from ...schema.regular import Repeat, Text, all_but, maybe, sequence
from ..audio.wav import as_wav
from ..decoding.loop_guard import HeardTokens
from ..listening import HeardReason, ListenEnd, ListenRequest
from ..whisper.rules import WhisperRules
from ..whisper.tokens import WhisperTokens
from .vocabulary import ListeningVocabulary

_CONTEXT = 448  # of every Whisper
_LATEST_FIRST = 1.0  # seconds: what is said begins no later
_NEVER = -100.0


class SGLangWhisper:
    """A Whisper on one or more SGLang servers, which have the usual grammar backend, xgrammar.

    tokenizer: the model's.
    generation_config: what its file of that name says, of which tokens it should not write.
    parallel: how many chunks of a recording are asked for at once.

    Of Whisper's rules, those are kept that a grammar and a bias can say: how the output begins, that no other special
    tokens come, that times come in pairs, and the tokens that are never written. That times go forward is left to the
    model. How likely it is that nobody spoke is not known; and with a temperature, SGLang's logprobs are those of the
    tokens as they were drawn.
    """

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
        self.parallel = parallel
        self._vocabulary = ListeningVocabulary(tokenizer)
        self._rules = WhisperRules.of(self._vocabulary, {}, generation_config or {})
        options = {**options, "vocabulary": self._vocabulary, "context": _CONTEXT}
        self._servers = Servers(urls, lambda url: _WhisperServer(url, "ebnf", **options), routing)
        self._biases = dict.fromkeys((token for token in self._rules.suppressed if token < self._rules.end), _NEVER)

    @property
    def model(self) -> str:
        return self._servers.model

    @property
    def vocabulary(self) -> Vocabulary:
        return self._vocabulary

    @property
    def load(self) -> Load:
        return self._servers.load

    async def listen(self, request: ListenRequest) -> AsyncGenerator[Piece | ListenEnd, None]:
        """The output, piece by piece; see `Listener`."""
        tokens = self._rules.tokens
        if request.prompt != (tokens.sot,):
            raise Unsupported("prompt: SGLang's Whisper takes none; leave it out")
        room = _CONTEXT - len(request.prompt)
        seed = None if request.temperature <= 0 else request.seed or 0  # the same each time
        asked = Generation(
            prompt="",  # what the decoder is given is SGLang's affair
            sampling=Sampling(temperature=request.temperature, seed=seed, logit_bias=self._biases),
            max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
            stop_tokens=(tokens.eot,),
            constraint=_constraint(request.prefix, tokens if request.timestamps else None),
            logprobs=0,
            audio=(Audio(await asyncio.to_thread(as_wav, request.samples), "wav"),),
        )
        output = HeardTokens(request.prefix, tokens.eot)
        reason: HeardReason = "loop"
        async with aclosing(self._servers.generate(asked)) as results:
            async for result in results:
                if isinstance(result, Finish):
                    reason = _reason(result)
                    continue
                yield output.take(result.logprobs)
                if output.loops:
                    break
        yield ListenEnd(reason, len(request.prompt), len(output.said), None, output.choice)

    async def check(self) -> None:
        """Return if the servers can take requests now; raise `EngineDown` if not."""
        await self._servers.check()

    async def close(self) -> None:
        await self._servers.close()


def _reason(finish: Finish) -> HeardReason:
    if finish.reason == "abort":
        raise EngineFailed("SGLang broke off in the middle of an output")
    return finish.reason


class _WhisperServer(SGLangServer):
    def body(self, request: Generation) -> dict[str, Any]:
        body = super().body(request)
        body["sampling_params"]["_detect_language"] = True  # the prompt is <|startoftranscript|> alone
        return {**body, "modalities": ["audio"]}


# What may come


@lru_cache(64)
def _constraint(prefix: TokenSets, timed: WhisperTokens | None) -> Constraint:
    """One of the tokens of each set, then text in which no special token is spelled; with times, these around it."""
    begins = [_one_of(some) for some in prefix.sets]
    text = TextExcept(("<|", _unsayable(prefix)))
    if timed is None:
        return Constraint(Language(sequence(*begins, text), {}))
    first, latest, last = timed.first_timestamp, timed.timestamp(_LATEST_FIRST), timed.last_timestamp
    time, words = Rule("time"), sequence(all_but("<"), text)
    stretches = sequence(words, Repeat(sequence(time, time, words)), maybe(time, maybe(time)))
    root = sequence(*begins, _one_of(range(first, latest + 1)), maybe(stretches))
    return Constraint(Language(root, {"time": _one_of(range(first, last + 1))}))


def _unsayable(prefix: TokenSets) -> str:
    """A word of private characters that there is one of for each prefix. xgrammar keeps the grammars that it has
    compiled, and up to 0.2.8 takes those for the same that differ in their tokens alone: this tells them apart."""
    spelled = ";".join(",".join(map(str, sorted(some))) for some in prefix.sets)
    return "".join(chr(0xE000 + byte) for byte in hashlib.sha256(spelled.encode()).digest()[:8])


def _one_of(tokens: Collection[int]) -> Token:
    """By their ids alone: of how they are spelled, SGLang is told nothing."""
    return one_token(tokens, Text(""))
