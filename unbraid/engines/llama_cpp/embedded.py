"""llama.cpp inside the process, as an engine.

llama.cpp has `parallel` slots, and computes for all of them in one step. Each running request has a thread of a pool,
which waits inside llama.cpp and hands tokens to the event loop by a `Job`; further requests wait for their turn, which
clients take one after the other (`unbraid.fairness`).

Aborting. A request can be cancelled only in its callback, and llama.cpp calls back after each step: with a token, or
with its progress through the prompt. So an abort takes effect when the present step is done, and frees the slot after
at most one more step. Three things keep that short (see `model`): a step is small; a request enters llama.cpp only when
its prompt can be begun at once, since one that is not begun calls nothing back; and until then its abort needs no
llama.cpp at all. Inside a step nothing can be aborted: an engine that has been silent for two minutes is taken for
stuck, and takes no more requests.

`reader` applies stop texts, stop tokens and the limit; an output that they end is aborted the same way.
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
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import aclosing
from functools import partial
from pathlib import Path
from weakref import WeakSet

from ...fairness import FairQueue, HeldPlace
from ...models import CATALOG, DEFAULT, Gguf, GgufVocabulary, ModelFiles, offer, resolve
from ...patience import patient_time
from ...templates import TokenizerFiles, from_source
from ..base import (
    EngineDown,
    EngineError,
    EngineFailed,
    EngineOptions,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Unsupported,
    refuse_audio,
    turn,
)
from ..jobs import Job
from ..reader import joined
from .model import LlamaModel, PromptQueue
from .reader import EmbeddedReader
from .requests import as_request

_log = logging.getLogger(__name__)
_STUCK = 120.0
"""Seconds without a callback after which llama.cpp is taken for stuck."""
_FAREWELL = 60.0
"""Seconds for llama.cpp to end what runs when the engine is closed."""
_CONTEXT = 4096
"""The default context, if the model can take as much."""


class EmbeddedEngine:
    """A GGUF model, run by llama.cpp in this process.

    You may use it from several event loops and threads, but not in a process that was forked after it was made. Such a
    process must also end with `os._exit`, as those of multiprocessing do: otherwise llama.cpp waits for its threads,
    which are not there.
    """

    def __init__(
        self,
        model: str | Path | ModelFiles = DEFAULT,
        *,
        context: int | None = None,
        parallel: int = 4,
        queue: int = 64,
        batch: int | None = None,
        threads: int | None = None,
        gpu_layers: int | None = None,
        name: str | None = None,
    ) -> None:
        """Load a model. This takes seconds, and more if it has to be fetched first. While xllamacpp loads it, no other
        thread of Python runs.

        model: what `unbraid.models.resolve` takes, or what it has returned.
        context: how many tokens each request may have, prompt and output together; by default 4096, or as many as the
            model can take.
        parallel: how many requests run at once. Memory for the context of each is set aside.
        queue: how many more may wait, besides those in the background.
        batch: how many tokens of prompts one step computes. Between steps, others get their turn and requests can be
            aborted. By default 64, and 512 on a GPU.
        threads: how many threads compute; by default one for each core but one. All cores are faster, if nothing else
            wants them.
        gpu_layers: how many layers go to a GPU; as many as fit by default.
        name: the name of the model.
        """
        if parallel < 1 or queue < 0 or (batch or 1) < 1 or (context is not None and context < 1):
            raise Unsupported("an engine needs context, parallel and batch of 1 or more, and queue of 0 or more")
        self.files = model if isinstance(model, ModelFiles) else resolve(model)
        self.gguf = Gguf(self.files.gguf)
        self.model = name or self.files.name or self.gguf.name
        trained = self.gguf.context_length or _CONTEXT
        self._llama = LlamaModel(
            self.files.gguf,
            context=context or min(_CONTEXT, trained),
            parallel=parallel,
            batch=batch,
            threads=threads,
            gpu_layers=gpu_layers,
        )
        self._prompts = PromptQueue(self._llama.batch - parallel)
        self.context = self._llama.context
        self.vocabulary = GgufVocabulary(self.gguf, self._llama.tokenize)
        """The model's tokens. It can also tokenize text."""
        self._turns = FairQueue(parallel, queue)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="unbraid-llama")
        self._jobs: set[_Request] = set()
        self._lock = threading.RLock()
        self._closed = False
        self._signs = 0
        """How often llama.cpp has called back."""
        self._last_look = (0, 0.0)
        """How often it had when somebody first looked and saw no more since, and when that was."""
        self._process = os.getpid()
        _engines.add(self)

    @property
    def load(self) -> Load:
        """Requests that have a thread, and those that wait for their turn."""
        with self._lock:  # all in there have a future
            futures = [job.future for job in list(self._jobs) if job.future is not None]
        running = sum(future.running() for future in futures)
        return Load(running, len(futures) - running + self._turns.waiting)

    @property
    def chat_template(self) -> str | None:
        """The model's chat template: that of a file beside the model, or else the one inside it."""
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
        job = await self._start(request, prompt, limit)
        async with aclosing(job.batches()) as batches:
            async for pieces in batches:
                yield joined(pieces)
        yield job.result

    async def check(self) -> None:
        """Return if the engine can take requests now; raise `EngineDown` if not."""
        self._refuse_if_down()

    async def close(self) -> None:
        """Abort what runs, and free the model."""
        await asyncio.to_thread(self.shut)

    def shut(self) -> None:
        """`close`, where there is no event loop."""
        if self._process != os.getpid() or self._llama in _stuck:
            return
        with self._lock:
            self._closed = True
            jobs = list(self._jobs)
        self._turns.close(EngineDown("the engine was closed"))
        for job in jobs:
            job.end(EngineDown("the engine was closed"))
            job.abort()
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [job.future for job in jobs if job.future is not None and not job.future.cancelled()]
        if wait(running, timeout=_FAREWELL).not_done:
            _stuck.append(self._llama)  # to free it would wait for ever
            _log.error("llama.cpp does not come back from what it does; it is left alone")
        else:
            self._llama.close()

    def forked(self) -> None:
        """For a forked process, in which llama.cpp's threads are not."""
        self._llama.abandon()

    def _measure(self, request: Generation) -> tuple[tuple[int, ...], int]:
        """The prompt's tokens, and how many may follow it."""
        self._refuse_if_down()
        refuse_audio(request, self.model)
        prompt = request.prompt
        if isinstance(prompt, str):
            prompt = tuple(self.vocabulary.encode(prompt, special=True))
        if not prompt:
            raise Unsupported("llama.cpp cannot go on with an empty prompt: give it one token at least", field="prompt")
        size = self.vocabulary.size
        for field, tokens in (("prompt", prompt), ("logit_bias", request.sampling.logit_bias)):
            for token in tokens:
                if not 0 <= token < size:
                    raise Unsupported(f"{self.model} has no token {token}: its vocabulary has {size}", field=field)
        room = self.context - len(prompt)
        limit = request.max_tokens
        if room < 1 or (limit is not None and limit > room):
            output = "" if limit is None else f" and {limit} tokens of output"
            raise PromptTooLong(
                f"a prompt of {len(prompt)} tokens{output} does not fit the context of {self.context} tokens",
                field="prompt" if room < 1 else "max_tokens",
            )
        return prompt, room if limit is None else max(0, limit)

    async def _start(self, request: Generation, prompt: tuple[int, ...], limit: int) -> _Request:
        place = await turn(self._turns, self.model)
        job = _Request(EmbeddedReader(request, self.vocabulary, len(prompt), limit), self._prompts)
        try:
            with self._lock:
                self._refuse_if_down()
                if not self._jobs:
                    self._signs += 1
                self._jobs.add(job)
                job.future = self._pool.submit(self._run, job, request, prompt, limit)
        except BaseException:
            place.leave()
            raise
        job.future.add_done_callback(partial(self._ended, job, place))
        return job

    def _ended(self, job: _Request, place: HeldPlace, _: Future[None]) -> None:
        """The thread is free, whether or not somebody has taken all of the output."""
        self._jobs.discard(job)
        place.leave()

    def _run(self, job: _Request, request: Generation, prompt: tuple[int, ...], limit: int) -> None:
        """In a thread of the pool: give the request to llama.cpp, and wait until it is done."""
        try:
            body = as_request(request, prompt, limit, self.context, self.vocabulary)
            if self._prompts.enter(job, len(prompt)):
                try:
                    self._llama.complete(body, partial(self._called_back, job))
                finally:
                    self._prompts.leave(job)
            job.end(EngineFailed("llama.cpp ended without saying how"))
        except Exception as error:
            job.end(error)

    def _called_back(self, job: _Request, chunk: bytes) -> bool:
        self._signs += 1
        return job.read(chunk)

    def _refuse_if_down(self) -> None:
        if self._process != os.getpid():
            raise EngineDown("the engine was made before this process was forked off: make one here", retry_after=60.0)
        if self._closed:
            raise EngineDown("the engine was closed", retry_after=60.0)
        if self._is_silent() and self.load.running:
            raise EngineDown(f"llama.cpp has been silent for more than {_STUCK:g} seconds", retry_after=60.0)

    def _is_silent(self) -> bool:
        """Whether llama.cpp has not called back for long, since somebody first looked. While this process itself stood
        still, nobody looked."""
        signs, since = self._last_look
        now = patient_time()
        if signs != self._signs:
            self._last_look = (self._signs, now)
            return False
        return now - since > _STUCK


class _Request(Job[Piece, Finish]):
    """One request, while it waits and while it runs."""

    def __init__(self, reader: EmbeddedReader, prompts: PromptQueue) -> None:
        super().__init__()
        self.future: Future[None] | None = None
        self._reader = reader
        self._prompts = prompts

    def read(self, chunk: bytes) -> bool:
        """Called by llama.cpp with each chunk of its answer. True cancels the request."""
        if self.aborted:
            return True
        try:
            piece = self._reader.read(json.loads(chunk))
            self._prompts.progress(self, self._reader.unread)
            if piece is not None:
                self.put([piece])
            finish = self._reader.finish()
            if finish is not None:
                self.end(finish)
        except EngineError as error:
            self.end(error)
        except Exception as error:  # llama.cpp would swallow it
            _log.debug("llama.cpp's answer is not understood: %.200r", chunk)
            self.end(EngineFailed(f"llama.cpp's answer is not understood: {type(error).__name__}"))
        return self.aborted or self.ended

    def abort(self) -> None:
        """If it runs, it ends with the step under way or the next one. If it waits, it never runs."""
        super().abort()
        if self.future is not None:
            self.future.cancel()
        self._prompts.wake()


def load(options: EngineOptions) -> tuple[EmbeddedEngine, TokenizerFiles]:
    """From the settings of the server. The tokenizer is llama.cpp itself."""
    if options.model is None and (offered := offer(CATALOG[DEFAULT].size)) is not None:
        _log.info("%s is very small, and %s", DEFAULT, offered)
    engine = EmbeddedEngine(
        options.model or DEFAULT,
        context=options.context,
        parallel=options.parallel,
        queue=options.queue,
        threads=options.threads,
        gpu_layers=options.gpu_layers,
    )
    return engine, tokenizer_files(engine)


def tokenizer_files(engine: EmbeddedEngine) -> TokenizerFiles:
    """The tokenizer, which is llama.cpp itself, and the chat template."""
    vocabulary = engine.vocabulary
    ends = tuple(vocabulary.decode([token]) for token in sorted(vocabulary.ends))
    begin = "" if vocabulary.bos is None else vocabulary.decode([vocabulary.bos])
    tokens = {"eos_token": ends[0] if ends else "", "bos_token": begin}
    source = engine.chat_template
    templates = {} if source is None else {"default": from_source(source, tokens, f"the template of {engine.model}")}
    return TokenizerFiles(vocabulary, templates, vocabulary.bos, ends)


_engines: WeakSet[EmbeddedEngine] = WeakSet()


def _abandon_all() -> None:
    for engine in list(_engines):
        engine.forked()


_stuck: list[LlamaModel] = []


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
