"""Recordings: what an engine said, written to a JSONL file, for a `ReplayEngine` to play again.

The file has one JSON object a line. The first is

    {"unbraid": "recording", "version": 1, "model": "…", "context": 4096}

Then each request has a line when it begins, with its number, one for each piece of its output, and one for its end.
Lines of requests that run at the same time are interleaved: `of` is the number of the request, `after` the seconds
since the previous line of the same request.

    {"request": 0, "prompt": [1, 2] or "…", "sampling": {…}, "max_tokens": …, "stop": […], "stop_tokens": […],
     "logprobs": …, "constrained": false, "audio": [{"format": "wav", "data": "… in base64"}]}
    {"of": 0, "after": 0.01, "ids": [3, 4], "logprobs": […]}       one of ids and text; logprobs where there are any:
    {"of": 0, "after": 0.01, "text": "…"}                          [id, bytes in hex, logprob or null, [the likeliest]]
    {"of": 0, "after": 0.01, "finish": {"reason": "stop", "prompt_tokens": 2, "completion_tokens": 2, …}}
    {"of": 0, "after": 0.01, "error": {"kind": "EngineFailed", "message": "…"}}    status, retry_after, field if known
    {"of": 0, "after": 0.01, "closed": true}                       it was aborted

A constraint itself is not recorded, only whether there was one. Readers skip unknown fields. A change that they could
not read gets another version.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from ..core.vocabulary import Vocabulary
from ..errors import UnbraidError
from ..templates import TokenizerFiles, load_tokenizer
from .base import (
    Audio,
    Engine,
    EngineBusy,
    EngineDown,
    EngineError,
    EngineFailed,
    EngineOptions,
    EngineTimeout,
    Finish,
    Generation,
    Load,
    Piece,
    PromptTooLong,
    Sampling,
    TokenLogprob,
    Unsupported,
)
from .replay import Ending, ReplayEngine, Script, TimedPiece
from .tokenizers import vocabulary_of

VERSION = 1
_ERRORS: dict[str, type[EngineError]] = {
    kind.__name__: kind
    for kind in (EngineBusy, EngineDown, EngineTimeout, EngineFailed, PromptTooLong, Unsupported, EngineError)
}
_MORE = {"status", "retry_after", "field"}
"""Attributes that errors may have besides their message."""


class Recorder:
    """Wraps an engine, and writes all of its outputs to a file."""

    def __init__(self, engine: Engine, path: str | Path) -> None:
        self._engine = engine
        self._path = Path(path)
        self._file: TextIO | None = None
        self._numbers = count()

    @property
    def model(self) -> str:
        return self._engine.model

    @property
    def vocabulary(self) -> Vocabulary | None:
        return self._engine.vocabulary

    @property
    def context(self) -> int | None:
        return self._engine.context

    @property
    def load(self) -> Load:
        return self._engine.load

    @property
    def replicas(self) -> Sequence[object]:
        """The replicas of the engine, if it has any."""
        replicas: Sequence[object] = getattr(self._engine, "replicas", ())
        return replicas

    async def generate(self, request: Generation) -> AsyncGenerator[Piece | Finish, None]:
        number = next(self._numbers)
        self._write({"request": number, **_write_request(request)})
        clock, ended = time.monotonic(), False

        def note(line: Mapping[str, Any]) -> None:
            nonlocal clock
            now = time.monotonic()
            self._write({"of": number, "after": round(now - clock, 6), **line})
            clock = now

        try:
            async with aclosing(self._engine.generate(request)) as outputs:
                async for output in outputs:
                    ended = isinstance(output, Finish)
                    note({"finish": asdict(output)} if isinstance(output, Finish) else _write_piece(output))
                    yield output
        except EngineError as error:
            ended = True
            note({"error": _write_error(error)})
            raise
        finally:
            if not ended:
                note({"closed": True})

    async def check(self) -> None:
        await self._engine.check()

    async def close(self) -> None:
        await self._engine.close()
        if self._file is not None:
            self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8")
            head = {"unbraid": "recording", "version": VERSION}
            self._write({**head, "model": self.model, "context": self.context})
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()


@dataclass(slots=True)
class Recording:
    """What a file holds: requests and their outputs, in the order in which they began."""

    model: str
    context: int | None
    requests: list[Generation] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)

    @property
    def has_ids(self) -> bool:
        """Whether outputs are token ids, which need a tokenizer."""
        return any(step.piece.ids for script in self.scripts for step in script.steps)

    def find(self, request: Generation) -> Script:
        """The output for the same prompt and audio. A `ReplayEngine` can take this method as its scripts."""
        for recorded, script in zip(self.requests, self.scripts, strict=True):
            if (recorded.prompt, recorded.audio) == (request.prompt, request.audio):
                return script
        raise Unsupported("this prompt was not recorded")


def read_recording(path: str | Path) -> Recording:
    """Read a file that a `Recorder` wrote. A file may be cut off: its last outputs then end with an error."""
    recording: Recording | None = None
    steps: dict[int, list[TimedPiece]] = {}
    endings: dict[int, Ending] = {}
    with Path(path).open("rb") as file:
        for at, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                break
            try:
                line = json.loads(text)
                if recording is None:
                    recording = _read_head(line)
                elif "request" in line:
                    recording.requests.append(_read_request(line))
                    steps[line["request"]] = []
                elif "ids" in line or "text" in line:
                    steps[line["of"]].append(TimedPiece(_read_piece(line), line["after"]))
                elif steps[line["of"]] is not None:
                    endings[line["of"]] = _read_ending(line)
            except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
                raise UnbraidError(f"{path}, line {at}, is no line of a recording: {error}") from error
    if recording is None:
        raise UnbraidError(f"{path} is no recording: it has no first line")
    cut = EngineFailed("the recording ends here")
    recording.scripts = [Script(tuple(pieces), endings.get(number, cut)) for number, pieces in steps.items()]
    return recording


def load(options: EngineOptions) -> tuple[ReplayEngine, TokenizerFiles]:
    """An engine that plays a recording again and again, from the settings of the server."""
    try:
        recording = read_recording(options.replay or "")
    except OSError as error:
        raise UnbraidError(f"--replay {options.replay} cannot be read: {error.strerror}") from error
    if options.tokenizer is None and recording.has_ids:
        raise UnbraidError(
            f"--replay {options.replay} holds the ids of tokens: give --tokenizer, with the tokenizer of the model "
            f"that was recorded ({recording.model})"
        )
    files = TokenizerFiles(None) if options.tokenizer is None else load_tokenizer(options.tokenizer)
    model = options.model or recording.model
    vocabulary = vocabulary_of(files)
    return ReplayEngine(
        recording.scripts, vocabulary=vocabulary, model=model, context=recording.context, repeat=True
    ), files


def _read_head(line: Mapping[str, Any]) -> Recording:
    if line.get("unbraid") != "recording" or line["version"] != VERSION:
        raise ValueError(f"it should say that this is a recording of version {VERSION}")
    return Recording(line["model"], line["context"])


def _write_request(request: Generation) -> dict[str, Any]:
    fields = ("prompt", "max_tokens", "stop", "stop_tokens", "logprobs")
    sampling = asdict(request.sampling)
    sampling["logit_bias"] = list(sampling["logit_bias"].items())  # JSON has no numbers for keys
    plain = {name: getattr(request, name) for name in fields}
    audio = [{"format": one.format, "data": base64.b64encode(one.data).decode()} for one in request.audio]
    return {**plain, "sampling": sampling, "constrained": request.constraint is not None, "audio": audio}


def _read_request(line: Mapping[str, Any]) -> Generation:
    prompt = line["prompt"]
    sampling = {**line["sampling"], "logit_bias": dict(line["sampling"]["logit_bias"])}
    return Generation(
        prompt=prompt if isinstance(prompt, str) else tuple(prompt),
        sampling=Sampling(**sampling),
        max_tokens=line["max_tokens"],
        stop=tuple(line["stop"]),
        stop_tokens=tuple(line["stop_tokens"]),
        logprobs=line["logprobs"],
        audio=tuple(Audio(base64.b64decode(one["data"]), one["format"]) for one in line.get("audio", ())),
    )


def _write_piece(piece: Piece) -> dict[str, Any]:
    line: dict[str, Any] = {"ids": piece.ids} if piece.ids else {"text": piece.text}
    if piece.logprobs:
        line["logprobs"] = [_write_logprob(one) for one in piece.logprobs]
    return line


def _write_logprob(one: TokenLogprob) -> list[Any]:
    logprob = one.logprob if math.isfinite(one.logprob) else None
    return [one.token, one.bytes.hex(), logprob, [_write_logprob(other) for other in one.top]]


def _read_piece(line: Mapping[str, Any]) -> Piece:
    logprobs = tuple(_read_logprob(one) for one in line.get("logprobs", ()))
    return Piece(tuple(line.get("ids", ())), line.get("text"), logprobs)


def _read_logprob(one: Sequence[Any]) -> TokenLogprob:
    token, data, logprob, top = one
    value = -math.inf if logprob is None else logprob
    return TokenLogprob(token, bytes.fromhex(data), value, tuple(_read_logprob(other) for other in top))


def _write_error(error: EngineError) -> dict[str, Any]:
    kind = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
    more = {name: getattr(error, name, None) for name in _MORE}
    return {"kind": kind, "message": str(error), **{name: value for name, value in more.items() if value is not None}}


def _read_ending(line: Mapping[str, Any]) -> Ending:
    if "finish" in line:
        return Finish(**line["finish"])
    if "error" in line:
        details = line["error"]
        error = _ERRORS.get(details["kind"], EngineError)(details["message"])
        for name in _MORE & details.keys():
            setattr(error, name, details[name])
        return error
    return "abort"
