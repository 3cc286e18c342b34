"""llama.cpp inside the process, as an engine.

llama.cpp has `parallel` slots, and works on all of them at once. Each running request has a thread, which waits inside
of llama.cpp and hands tokens to the event loop; others wait for a thread. Stop texts, stop tokens and the limit are
looked after here, and what is to end is aborted, which takes effect with the next token.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from weakref import WeakSet

from ...models import DEFAULT, KNOWN, Gguf, GgufVocabulary, ModelFiles, resolve
from ..base import (
    EngineDown,
    EngineError,
    EngineFailed,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Unsupported,
    refuse_audio,
)
from ..stops import Token, as_piece
from .model import LlamaServer, as_request
from .output import Output

_log = logging.getLogger(__name__)
_STUCK = 120.0
"""Seconds without a sign of llama.cpp after which it is taken for stuck: inside of one step nothing can be aborted."""
_FAREWELL = 10.0
"""Seconds that it has to end what runs, when the engine is closed."""
_CONTEXT = 4096  # if nothing is said, and the model can take as much


class EmbeddedEngine:
    """A GGUF model, run by llama.cpp in this process.

    It may be used from several event loops and threads, but not in a process that was forked off after it was made.
    Such a process must also end with `os._exit`, as those of multiprocessing do: llama.cpp waits for its threads, which
    are not there, otherwise.
    """

    def __init__(
        self,
        model: str | Path | ModelFiles = DEFAULT,
        *,
        context: int | None = None,
        parallel: int = 4,
        queue: int = 64,
        batch: int = 128,
        threads: int | None = None,
        gpu_layers: int | None = None,
        name: str | None = None,
    ) -> None:
        """Load a model; this takes seconds, and more if it is to be fetched first. While xllamacpp loads it, no other
        thread of Python runs.

        model: what `unbraid.models.resolve` takes, or what it has returned.
        context: how many tokens each request may have, prompt and output together; 4096 or as many as the model can
            take.
        parallel: how many requests run at once; each has memory for its context set aside.
        queue: how many more may wait.
        batch: how many tokens of a prompt are worked on at once. In between, others get their turn, and a request can
            be aborted. On a GPU more is faster.
        threads: how many threads compute; by default one for each core but one. All cores are faster, if nothing else
            wants them.
        gpu_layers: how many layers go to a GPU; as many as fit by default.
        name: what to call the model.
        """
        if parallel < 1 or queue < 0 or batch < 1 or (context is not None and context < 1):
            raise Unsupported("an engine needs context, parallel and batch of 1 or more, and queue of 0 or more")
        self.files = model if isinstance(model, ModelFiles) else resolve(model)
        self.gguf = Gguf(self.files.gguf)
        self._name = name or (model if isinstance(model, str) and model in KNOWN else self.gguf.name)
        trained = self.gguf.context_length or _CONTEXT
        self._server = LlamaServer(
            self.files.gguf,
            context=context or min(_CONTEXT, trained),
            parallel=parallel,
            batch=batch,
            threads=threads,
            gpu_layers=gpu_layers,
        )
        self._vocabulary = GgufVocabulary(self.gguf, self._server.tokenize)
        self._most = parallel + queue
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="unbraid-llama")
        self._jobs: set[_Job] = set()
        self._lock = threading.RLock()
        self._closed = False
        self._heard = time.monotonic()
        """When llama.cpp last gave a sign, or had nothing to do."""
        self._process = os.getpid()
        _engines.add(self)

    @property
    def model(self) -> str:
        """What the model is called."""
        return self._name

    @property
    def vocabulary(self) -> GgufVocabulary:
        """The model's tokens; it can also cut texts into them."""
        return self._vocabulary

    @property
    def context(self) -> int:
        """The most tokens that prompt and output can have together."""
        return self._server.context

    @property
    def load(self) -> Load:
        """Requests that are in a slot of llama.cpp, and those that wait for one."""
        with self._lock:  # all in there have a future
            futures = [job.future for job in list(self._jobs) if job.future is not None]
        running = sum(future.running() for future in futures)
        return Load(running, len(futures) - running)

    @property
    def chat_template(self) -> str | None:
        """The model's chat template: a file beside the model goes before the one inside."""
        path = self.files.chat_template
        if path is None:
            return self.gguf.chat_template
        text = path.read_text(encoding="utf-8")
        return str(json.loads(text)["chat_template"]) if path.suffix == ".json" else text

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        """The output, piece by piece; see `Engine`. All tokens that have come in the meantime make one piece."""
        prompt, limit = self._measure(request)
        if limit == 0:
            yield Finish("length", len(prompt), 0)
            return
        job = self._start(request, prompt, limit)
        try:
            while True:
                tokens, end = await job.take()
                if tokens:
                    yield as_piece(tokens)
                if isinstance(end, Finish):
                    yield end
                    return
                if end is not None:
                    raise end
        finally:
            job.abort()

    async def check(self) -> None:
        """Return if the engine can take requests now; raise `EngineDown` if not."""
        self._refuse_if_down()

    async def close(self) -> None:
        """Abort what runs, and let the model go."""
        await asyncio.to_thread(self.shut)

    def shut(self) -> None:
        """`close`, where there is no event loop."""
        if self._process != os.getpid() or self._server in _stuck:
            return
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
        for job in jobs:
            job.end(EngineDown("the engine was closed"))
            job.abort()
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [job.future for job in jobs if job.future is not None and not job.future.cancelled()]
        if wait(running, timeout=_FAREWELL).not_done:
            _stuck.append(self._server)  # to let it go would wait for ever
            _log.error("llama.cpp does not come back from what it does; it is left alone")
        else:
            self._server.close()

    def forked(self) -> None:
        """In a process that was forked off: llama.cpp's threads are not here."""
        self._server.abandon()

    def _measure(self, request: Generation) -> tuple[tuple[int, ...], int]:
        """The prompt's tokens, and how many may follow it."""
        self._refuse_if_down()
        refuse_audio(request, self._name)
        prompt = request.prompt
        if isinstance(prompt, str):
            prompt = tuple(self._vocabulary.encode(prompt, special=True))
        if not prompt:
            raise Unsupported("llama.cpp cannot go on with an empty prompt: give it one token at least")
        size = self._vocabulary.size
        for token in (*prompt, *request.sampling.logit_bias):
            if not 0 <= token < size:
                raise Unsupported(f"{self._name} has no token {token}: its vocabulary has {size}")
        room = self.context - len(prompt)
        wanted = request.max_tokens
        if room < 1 or (wanted is not None and wanted > room):
            asked = "" if wanted is None else f" and {wanted} tokens of output"
            raise PromptTooLong(
                f"a prompt of {len(prompt)} tokens{asked} does not fit the context of {self.context} tokens"
            )
        return prompt, room if wanted is None else max(0, wanted)

    def _start(self, request: Generation, prompt: tuple[int, ...], limit: int) -> _Job:
        job = _Job(asyncio.get_running_loop(), Output(request, self._vocabulary, len(prompt), limit))
        with self._lock:
            self._refuse_if_down()
            if not self._jobs:
                self._heard = time.monotonic()
            if len(self._jobs) >= self._most:
                raise EngineDown(f"{self._name} has {self._most} requests running and waiting already: try again later")
            self._jobs.add(job)
            job.future = self._pool.submit(self._run, job, request, prompt, limit)
        job.future.add_done_callback(lambda _: self._jobs.discard(job))
        return job

    def _run(self, job: _Job, request: Generation, prompt: tuple[int, ...], limit: int) -> None:
        """In a thread of the pool: put the request to llama.cpp, and wait until it is done."""
        try:
            if not job.aborted:
                body = as_request(request, prompt, limit, self.context, self._vocabulary)
                self._server.complete(body, partial(self._hear, job))
            job.end(EngineFailed("llama.cpp ended without saying how"))
        except Exception as error:
            job.end(error)

    def _hear(self, job: _Job, said: bytes) -> bool:
        self._heard = time.monotonic()
        return job.read(said)

    def _refuse_if_down(self) -> None:
        if self._process != os.getpid():
            raise EngineDown("the engine was made before this process was forked off: make one here", retry_after=60.0)
        if self._closed:
            raise EngineDown("the engine was closed", retry_after=60.0)
        if time.monotonic() - self._heard > _STUCK and self.load.running:
            raise EngineDown(f"llama.cpp has been silent for more than {_STUCK:g} seconds", retry_after=60.0)


class _Job:
    """One request: a thread puts tokens in, an event loop takes them out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, output: Output) -> None:
        self.aborted = False
        self.future: Future[None] | None = None
        self._loop = loop
        self._output = output
        self._tokens: deque[Token] = deque()
        self._end: Finish | Exception | None = None
        self._ready = asyncio.Event()
        self._told = False

    def read(self, said: bytes) -> bool:
        """Called by llama.cpp with each piece of its answer; true for no more."""
        if self.aborted:
            return True
        try:
            self._tokens.extend(self._output.read(json.loads(said)))
            if self._output.finish is not None:
                self.end(self._output.finish)
            elif self._tokens:
                self._tell()
        except EngineError as error:
            self.end(error)
        except Exception as error:  # llama.cpp would swallow it
            self.end(EngineFailed(f"llama.cpp's answer is not understood ({error!r}): {said[:200]!r}"))
        return self.aborted or self._end is not None

    def end(self, end: Finish | Exception) -> None:
        """The request is over; only the first end counts."""
        if self._end is None:
            self._end = end
            self._tell()

    def abort(self) -> None:
        """No more is wanted. If it runs, it ends with the next token; if it waits, it never runs."""
        self.aborted = True
        if self.future is not None:
            self.future.cancel()

    async def take(self) -> tuple[list[Token], Finish | Exception | None]:
        """The tokens that have come since the last time, and the end if it is there."""
        await self._ready.wait()
        self._ready.clear()
        self._told = False  # before the tokens are taken: from now on, those that come are told again
        end = self._end  # before the tokens, too: what comes before the end is there when the end is
        tokens = [self._tokens.popleft() for _ in range(len(self._tokens))]
        return tokens, end

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the event loop is closed: nobody listens any more
            self.aborted = True


_engines: WeakSet[EmbeddedEngine] = WeakSet()


def _abandon_all() -> None:
    for engine in list(_engines):
        engine.forked()


_stuck: list[LlamaServer] = []


def _shut_all() -> None:
    for engine in list(_engines):
        with contextlib.suppress(Exception):
            engine.shut()
    if _stuck:  # Python would wait for its threads for ever
        sys.stderr.flush()
        os._exit(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
# Before Python waits for the pool's threads, which are waiting for llama.cpp; plain atexit would be too late.
getattr(threading, "_register_atexit", atexit.register)(_shut_all)
