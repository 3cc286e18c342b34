"""vLLM's `AsyncLLM` in this process: started, asked and shut down, with its errors as those of `engines.base`.

Both engines over it build on `AsyncVLLM`: `engines.vllm.local` for text, `unbraid.speech` for Whisper. They differ in
the prompt and in how they read results. Checked against vLLM 0.32.
"""

from __future__ import annotations

import asyncio
import importlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from ..base import EngineBusy, EngineDown, EngineError, EngineFailed, Load, Unsupported
from ..refusals import refusal


class AsyncVLLM:
    """A model that vLLM runs for this process. The work itself is done in processes that vLLM starts: a script that
    makes one needs `if __name__ == "__main__":`.

    It belongs to the event loop in which it is used first.
    """

    def __init__(self, model: str | Path, name: str | None, engine_args: dict[str, Any]) -> None:
        arguments, llm = vllm("vllm.engine.arg_utils"), vllm("vllm.v1.engine.async_llm")
        # What vLLM does not take, it says clearly itself.
        self._llm: Any = llm.AsyncLLM.from_engine_args(arguments.AsyncEngineArgs(model=str(model), **engine_args))
        self._context = int(self._llm.model_config.max_model_len)
        self._name = name or str(model)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[str] = set()
        self._closed = False

    @property
    def model(self) -> str:
        """What the model is called."""
        return self._name

    @property
    def context(self) -> int:
        """The most tokens that prompt and output can have together."""
        return self._context

    @property
    def load(self) -> Load:
        """Requests here; vLLM does not say which of them wait."""
        return Load(len(self._running))

    async def _results(
        self, asked: Callable[[], Awaitable[tuple[Any, Any]]], **options: Any
    ) -> AsyncGenerator[Any, None]:
        """What vLLM says of a request. Closing the generator aborts it.

        asked: makes the prompt and the `SamplingParams`, either of which vLLM may refuse.
        """
        await self.check()
        name = uuid.uuid4().hex
        begun, reason = False, None
        self._running.add(name)
        try:
            prompt, sampling = await asked()
            async with aclosing(self._llm.generate(prompt, sampling, name, **options)) as results:
                async for result in results:
                    begun, reason = begun or bool(result.outputs[0].token_ids), result.outputs[0].finish_reason
                    yield result
        except EngineError:
            raise
        except Exception as error:
            raise _as_error(error, begun) from error
        finally:
            self._running.discard(name)
        if reason == "error":
            raise EngineFailed(f"{self._name}: vLLM made an error with this request, which it has logged")
        if reason == "abort" and self._closed:
            raise EngineFailed("the output broke off: the engine was closed") if begun else _closed()

    async def check(self) -> None:
        """Return if the engine can take requests now; raise `EngineDown` if not."""
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise EngineError("this engine was used in another event loop before: make one for each, or use one loop")
        self._loop = loop
        if self._llm.errored:
            raise EngineDown(f"{self._name}: vLLM has broken down, as its log says: make a new engine", 60.0)

    async def close(self) -> None:
        """Abort what runs, and let the model go."""
        if self._closed:
            return
        self._closed = True
        if self._loop is asyncio.get_running_loop():
            with suppress(Exception):  # where vLLM has broken down, there is nothing to abort
                await self._llm.abort(list(self._running))
        await asyncio.to_thread(self._llm.shutdown)
        self._llm = None  # it shuts itself down once more when it is dropped, and should not do so when Python ends


def vllm(module: str) -> Any:
    """A module of vLLM, which is large, and imported only by those who use it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "vllm":
            raise
        raise Unsupported(
            f"vLLM inside the process needs its library (there is no {error.name}): pip install vllm"
        ) from error


def _closed() -> EngineDown:
    return EngineDown("the engine was closed", retry_after=60.0)


def _as_error(error: Exception, begun: bool) -> EngineError:
    """What vLLM's errors mean."""
    ours, engine = vllm("vllm.exceptions"), vllm("vllm.v1.engine.exceptions")
    cause = error.__cause__ if isinstance(error, engine.EngineGenerateError) else error
    message = " ".join(str(cause or error).split()) or type(cause or error).__name__
    if not begun:
        if isinstance(cause, (ours.VLLMClientError, ValueError, TypeError)):
            return refusal(400, message)
        if isinstance(cause, ours.GracefulHTTPError):
            return EngineBusy(message)
        if isinstance(cause, engine.EngineDeadError):
            return EngineDown(f"vLLM has broken down, as its log says: {message}", 60.0)
    return EngineFailed(message)
