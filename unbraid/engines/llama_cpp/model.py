"""llama.cpp inside the process, by the xllamacpp wheel: a loaded model that completes prompts and tokenizes text.

The wheel runs llama.cpp's server in a thread of its own. A request goes through `handle_completions`, which keeps the
calling thread until it is done, and calls back with each chunk of the answer. To tokenize, the server is asked over
HTTP, on the loopback address that it listens on anyway, with a key that nobody else knows. There is no other way:
calling its C functions would depend on how their structs are laid out in one version.

How long a step takes matters, because nothing can be aborted inside one. A step computes one token for each request
that generates, and prompt tokens until the batch is full. Between steps, cancelled requests are dropped. So `n_batch`
is what bounds an abort: 64 tokens on a CPU, where more is hardly faster, and 512 on a GPU, where it is, and where a
step takes milliseconds. `n_ubatch` is the same, since a step that is computed in parts is no easier to interrupt.

Which requests may enter matters as well. llama.cpp fills each step with prompt tokens, slot by slot. While one slot has
a long prompt, the slots after it are not begun: they call nothing back, and only a callback can cancel a request. So a
request waits in the `PromptQueue`, where it can be aborted at once, until the prompts that are being read leave room in
the next step. From then on llama.cpp reports progress after every step. Short prompts still share a step. A long one is
read beside nothing but generation, which does not make it slower.
"""

from __future__ import annotations

import http.client
import importlib
import json
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ..base import EngineDown, EngineFailed, Unsupported
from .requests import as_error

_HTTP_TIMEOUT = 60.0
_CPU_BATCH = 64
_GPU_BATCH = 512


class LlamaModel:
    """One loaded model. Its methods may be called from any thread.

    batch: how many tokens one step computes at most; by default as many as suit the machine.
    """

    def __init__(
        self,
        path: Path,
        *,
        context: int,
        parallel: int,
        batch: int | None,
        threads: int | None,
        gpu_layers: int | None,
    ) -> None:
        library = _library()
        key = secrets.token_hex(16)
        params = library.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context * parallel
        params.n_parallel = parallel
        # Beside one token of each request that generates, there is always room for some of a prompt.
        self.batch = max(batch or _batch(library, gpu_layers), 2 * parallel)
        """How many tokens one step computes at most."""
        params.n_batch = params.n_ubatch = self.batch
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
        self._loopback = Loopback(self._server.listening_address.removeprefix("http://"), key)
        of_slot: int = self._loopback.ask("GET", "/props")["default_generation_settings"]["n_ctx"]
        self.context = min(context, of_slot)

    def complete(self, body: bytes, callback: Callable[[bytes], bool]) -> None:
        """Run a request, and call `callback` with each chunk of the answer until it returns true, which cancels it."""
        server = self._server
        if server is None:
            raise EngineDown("the engine was closed")
        server.handle_completions(body, callback)

    def tokenize(self, text: str, special: bool) -> list[int]:
        """The tokens of `text`."""
        if self._server is None:
            raise EngineDown("the engine was closed")
        return self._loopback.tokenize(text, special)

    def __reduce__(self) -> tuple[Callable[[Loopback], Loopback], tuple[Loopback]]:
        """In another process, it can only tokenize."""
        return _itself, (self._loopback,)

    def close(self) -> None:
        """Free the model. No request may be running."""
        self._server = None
        self._loopback.hang_up()

    def abandon(self) -> None:
        """For a forked process: llama.cpp's threads are not in it, and freeing the model would wait for them for ever.
        So the model is leaked."""
        _kept_for_ever.append(self._server)
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))
        self._server = None
        self._loopback.forget()


class Loopback:
    """The way to the HTTP server of a loaded model. It may be sent to another process."""

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = address, key
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._idle: deque[http.client.HTTPConnection] = deque()
        """Connections that are free. There are several, so that a long text does not keep short ones waiting."""

    def __reduce__(self) -> tuple[type[Loopback], tuple[str, str]]:
        return Loopback, (self._address, self._key)

    def tokenize(self, text: str, special: bool) -> list[int]:
        """The tokens of `text`."""
        body = {"content": text, "add_special": False, "parse_special": special}
        tokens: list[int] = self.ask("POST", "/tokenize", body)["tokens"]
        return tokens

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            try:
                status, answer = self._exchange(method, path, data)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):  # it was idle for too long, and the others may have been too
                self.hang_up()
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

    def hang_up(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def forget(self) -> None:
        """For a forked process: the connections are those of the other one."""
        self._idle = deque()


class Abortable(Protocol):
    """A request that may be given up at any time."""

    @property
    def aborted(self) -> bool: ...


class PromptQueue:
    """Lets requests into llama.cpp, first come, first served. Its methods may be called from any thread.

    room: how many prompt tokens fit into one step at least.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[Abortable] = deque()
        self._unread: dict[Abortable, int] = {}
        """Prompt tokens that are still to be read, for each request that has entered."""
        self._changed = threading.Condition()

    def enter(self, request: Abortable, tokens: int) -> bool:
        """Wait until a request with a prompt of so many tokens may enter. False if it was aborted before."""
        with self._changed:
            self._waiting.append(request)
            self._changed.wait_for(lambda: request.aborted or self._is_next(request))
            self._waiting.remove(request)
            if not request.aborted:
                self._unread[request] = tokens
            self._changed.notify_all()
            return request in self._unread

    def _is_next(self, request: Abortable) -> bool:
        return self._waiting[0] is request and sum(self._unread.values()) < self._room

    def progress(self, request: Abortable, unread: int) -> None:
        """Note that `unread` prompt tokens of a request that has entered are still to be read."""
        with self._changed:
            if self._unread[request] != unread:
                self._unread[request] = unread
                self._changed.notify_all()

    def leave(self, request: Abortable) -> None:
        """Note that llama.cpp is done with a request that had entered."""
        with self._changed:
            del self._unread[request]
            self._changed.notify_all()

    def wake(self) -> None:
        """Note that a request was aborted."""
        with self._changed:
            self._changed.notify_all()


def _itself(loopback: Loopback) -> Loopback:
    return loopback


_kept_for_ever: list[Any] = []


def _library() -> Any:
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise Unsupported("llama.cpp comes with the package xllamacpp: pip install 'xllamacpp>=2026.10'") from error


def _batch(library: Any, gpu_layers: int | None) -> int:
    cpu = library.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    on_gpu = gpu_layers != 0 and any(device["type"] != cpu for device in library.get_device_info())
    return _GPU_BATCH if on_gpu else _CPU_BATCH


def _threads() -> int:
    """One for each core but one, which is left to the rest of the process. llama.cpp's threads spin while they wait for
    each other, so it becomes many times slower where one of them does not get its core."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    return max(1, cores - 1)
