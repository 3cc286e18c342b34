"""llama.cpp inside the process, by the xllamacpp wheel: a model loaded, requests put to it, texts cut into tokens.

A request goes through `handle_completions`, which keeps its thread until it is done. Tokens of a text are asked for
over HTTP, on the loopback address that the library listens on anyway, with a key that nobody else knows: there is no
other way, and calling its C functions past it would depend on how their structs are laid out in one version.
"""

from __future__ import annotations

import http.client
import importlib
import json
import math
import os
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.vocabulary import WholeVocabulary
from ..base import EngineDown, EngineError, EngineFailed, Generation, PromptTooLong, Sampling, Unsupported
from .requests import constraint_fields

MARGIN = 3
"""How many tokens more than wanted are asked for: one whose last character is not whole yet is told only with the token
that completes it."""
_HTTP_TIMEOUT = 60.0
_MOST_BIAS = 1e6
_SEEDS = 2**32 - 1  # the highest one means any


class LlamaServer:
    """One loaded model. Its methods may be called from any thread."""

    def __init__(
        self, path: Path, *, context: int, parallel: int, batch: int, threads: int | None, gpu_layers: int | None
    ) -> None:
        library = _library()
        key = secrets.token_hex(16)
        params = library.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context * parallel
        params.n_parallel = parallel
        params.n_batch = params.n_ubatch = max(batch, parallel)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads or _threads()
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        params.special = True  # control tokens are output too
        params.cache_ram_mib = 0  # each slot keeps its last prompt; that is enough
        params.n_threads_http = 2
        params.api_keys = [key]
        params.ui = params.endpoint_slots = False
        params.verbosity = -1
        params.warmup = False
        try:
            self._server: Any = library.Server(params)
        except RuntimeError as error:
            raise EngineFailed(
                f"llama.cpp cannot load {path} with a context of {context} × {parallel}: {error}"
            ) from error
        self._address = self._server.listening_address.removeprefix("http://")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._idle: deque[http.client.HTTPConnection] = deque()
        """Connections that nobody uses now: long texts must not keep short ones waiting."""
        known: int = self._ask("GET", "/props")["default_generation_settings"]["n_ctx"]
        self.context = min(context, known)

    def complete(self, body: bytes, callback: Callable[[bytes], bool]) -> None:
        """Run a request, and call `callback` with each piece of the answer until it returns true."""
        server = self._server
        if server is None:
            raise EngineDown("the engine was closed")
        server.handle_completions(body, callback)

    def tokenize(self, text: str, special: bool) -> list[int]:
        """The tokens of `text`."""
        asked = {"content": text, "add_special": False, "parse_special": special}
        found: list[int] = self._ask("POST", "/tokenize", asked)["tokens"]
        return found

    def close(self) -> None:
        """Let the model go. No request may be running."""
        self._server = None
        self._hang_up()

    def abandon(self) -> None:
        """In a process that was forked off: the threads of llama.cpp are not here, and letting it go would wait for
        them for ever. So it stays."""
        _kept_for_ever.append(self._server)
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))
        self._server = None
        self._idle = deque()

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        if self._server is None:
            raise EngineDown("the engine was closed")
        data = None if body is None else json.dumps(body).encode()
        try:
            try:
                status, answer = self._exchange(method, path, data)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):  # the connection had been idle for too long, as all may have
                self._hang_up()
                status, answer = self._exchange(method, path, data)
        except (OSError, http.client.HTTPException) as error:
            raise EngineFailed(f"llama.cpp does not answer at {self._address}: {error!r}") from error
        if status != 200:
            raise as_error(json.loads(answer))
        return json.loads(answer)

    def _exchange(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = http.client.HTTPConnection(self._address, timeout=_HTTP_TIMEOUT)
        try:
            connection.request(method, path, data, self._headers)
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return response.status, answer

    def _hang_up(self) -> None:
        while self._idle:
            self._idle.pop().close()


_kept_for_ever: list[Any] = []


def _library() -> Any:
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise Unsupported("llama.cpp comes with the package xllamacpp: pip install 'xllamacpp>=2026.10'") from error


def _threads() -> int:
    """One for each core but one, which is left to the rest of the process: llama.cpp's threads wait for each other
    without sleeping, and it becomes many times slower where one of them does not get its core."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    return max(1, cores - 1)


def as_request(
    request: Generation, prompt: tuple[int, ...], limit: int, context: int, vocabulary: WholeVocabulary
) -> bytes:
    """The request as llama.cpp wants it. Stop texts and tokens are not in it: we look for them ourselves."""
    body: dict[str, Any] = {
        "prompt": prompt,
        "n_predict": limit + MARGIN,
        "stream": True,
        "verbose": True,  # for each token's id, and how many there are
        "return_progress": True,  # so that there is something to abort while the prompt is read
        "cache_prompt": True,
        "sse_ping_interval": -1,
        **_sampling(request.sampling, context),
        "logit_bias": _biases(request),
    }
    if request.logprobs is not None:
        body["n_probs"] = max(1, request.logprobs)
    if request.constraint is not None:
        body |= constraint_fields(request.constraint, vocabulary)
    return json.dumps(body).encode()


def _sampling(sampling: Sampling, context: int) -> dict[str, Any]:
    greedy = sampling.temperature <= 0
    top_k = 1 if greedy else max(0, sampling.top_k)
    penalties = sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1
    active = {
        "penalties": penalties,
        "temperature": not greedy,
        "min_p": not greedy and sampling.min_p > 0,
        "top_k": top_k > 0,
        "top_p": not greedy and sampling.top_p < 1,
    }
    return {
        "samplers": [name for name, is_active in active.items() if is_active],
        "temperature": 1.0 if greedy else sampling.temperature,
        "top_k": top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": context if penalties else 0,
        "seed": _SEEDS if sampling.seed is None else sampling.seed % _SEEDS,
    }


def _biases(request: Generation) -> list[tuple[int, float | bool]]:
    """`False` forbids a token, but never where there is a constraint: that must always leave a token to choose."""
    bias = request.sampling.logit_bias
    if any(map(math.isnan, bias.values())):
        raise Unsupported("logit_bias has a value that is not a number")
    may_forbid = request.constraint is None
    return [
        (token, False if may_forbid and value == -math.inf else max(-_MOST_BIAS, min(_MOST_BIAS, value)))
        for token, value in bias.items()
    ]


def as_error(answer: Any) -> EngineError:
    """What llama.cpp says has gone wrong."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return EngineFailed(f"llama.cpp failed: {answer}")
    message, kind = str(error.get("message", error)), error.get("type")
    if kind == "exceed_context_size_error":
        return PromptTooLong(message)
    if "grammar" in message:
        return Unsupported(f"llama.cpp does not take the constraint's grammar ({message}): leave the constraint out")
    if kind == "unavailable_error":
        return EngineDown(f"llama.cpp takes no requests now: {message}")
    if error.get("code") in (400, 501):
        return Unsupported(f"llama.cpp does not take the request: {message}")
    return EngineFailed(f"llama.cpp failed: {message}")
