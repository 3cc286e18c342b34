"""A library that holds outputs to a grammar, in a process of its own, by its name.

A line of JSON comes in with a grammar and texts, and one goes out: which texts the library lets through and lets end
there, or why it does not take the grammar. A line with `ids` is timed instead, by the tokens of a real vocabulary;
texts are fed byte by byte. What the library prints goes to standard error. The name `to_gbnf` stands for llama.cpp's
converter. It needs the standard library and the library itself.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

Job = dict[str, Any]
Bytes = list[bytes]
REPEATS = 3
SLOW_MS = 300
"""What takes longer is timed once."""


class Walk(Protocol):
    """One output under a grammar."""

    def mask(self) -> None: ...

    def accept(self, token: int) -> bool: ...

    def may_end(self) -> bool: ...


class Library(Protocol):
    def compile(self, job: Job, tokens: Bytes) -> tuple[Callable[[], Walk], str]:
        """What begins an output under the grammar, and what the library says of it; raises where it refuses it."""


# xgrammar


class XGrammarWalk:
    def __init__(self, library: Any, compiled: Any, tokens: int) -> None:
        self._matcher, self._end = library.GrammarMatcher(compiled), tokens
        self._mask = library.allocate_token_bitmask(1, tokens + 1)

    def mask(self) -> None:
        self._matcher.fill_next_token_bitmask(self._mask)

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def may_end(self) -> bool:
        self.mask()
        return bool(int(self._mask[0, self._end // 32]) >> self._end % 32 & 1)


class XGrammar:
    def __init__(self) -> None:
        self._library: Any = importlib.import_module("xgrammar")
        self._compilers: dict[int, Any] = {}

    def compile(self, job: Job, tokens: Bytes) -> tuple[Callable[[], Walk], str]:
        library, end = self._library, len(tokens)
        if end not in self._compilers:
            info = library.TokenizerInfo([*tokens, b"<|end|>"], library.VocabType.RAW, stop_token_ids=[end])
            self._compilers[end] = library.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        method, _, option = job["syntax"].partition(" ")
        options = {"strict_mode": False} if option else {}
        compiled = getattr(self._compilers[end], f"compile_{method}")(job["grammar"], **options)
        return lambda: XGrammarWalk(library, compiled, end), ""


# llguidance


class LlguidanceWalk:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def mask(self) -> None:
        self._matcher.compute_bitmask()

    def accept(self, token: int) -> bool:
        return bool(self._matcher.try_consume_tokens([token]))

    def may_end(self) -> bool:
        if self._matcher.is_error():
            raise RuntimeError(self._matcher.get_error())
        return bool(self._matcher.is_accepting())


class ByteTokenizer:
    """A vocabulary as llguidance wants to see it."""

    bos_token_id = None

    def __init__(self, tokens: Bytes) -> None:
        self.tokens, self.eos_token_id = [*tokens, b"<|end|>"], len(tokens)
        self.special_token_ids = [len(tokens)]
        self._ids = {token: at for at, token in reversed([*enumerate(tokens)])}

    def __call__(self, text: bytes) -> list[int]:
        return [self._ids.get(bytes([byte]), 0) for byte in text]


class Llguidance:
    def __init__(self) -> None:
        self._library: Any = importlib.import_module("llguidance")
        self._tokenizers: dict[int, Any] = {}

    def compile(self, job: Job, tokens: Bytes) -> tuple[Callable[[], Walk], str]:
        library = self._library
        if len(tokens) not in self._tokenizers:
            wrapped = library.TokenizerWrapper(ByteTokenizer(tokens))
            self._tokenizers[len(tokens)] = library.LLTokenizer(wrapped)
        grammar = getattr(library.LLMatcher, f"grammar_from_{job['syntax']}")(job["grammar"])
        matcher = library.LLMatcher(self._tokenizers[len(tokens)], grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return lambda: LlguidanceWalk(matcher.deep_copy()), matcher.get_grammar_warnings() or ""


# llama.cpp


class _Room(ctypes.Structure):
    """Room for an object of C++ that is returned by value."""

    _fields_ = (("words", ctypes.c_void_p * 32),)


def to_gbnf(schema: str) -> str:
    """llama.cpp's own converter, as the wheel exports it. The wheel's function for Python hands a schema to llguidance,
    which most builds of llama.cpp are without. What it has against a schema it says on stderr, and the process ends."""
    (folder,) = importlib.import_module("xllamacpp").__path__
    (path,) = Path(folder).glob("xllamacpp.*.so")
    library, words = ctypes.CDLL(str(path)), ctypes.CDLL("libstdc++.so.6")
    make = words._ZNSsC1EPKcRKSaIcE
    make.restype, make.argtypes = None, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    parse, convert = library._ZN11common_json5parseERKSs, library._Z22json_schema_to_grammarRK11common_jsonb
    parse.restype, parse.argtypes = _Room, [ctypes.c_void_p]
    convert.restype, convert.argtypes = _Room, [ctypes.c_void_p, ctypes.c_bool]
    text = _Room()
    make(ctypes.byref(text), schema.encode(), ctypes.byref(_Room()))
    document = parse(ctypes.byref(text))
    return ctypes.string_at(convert(ctypes.byref(document), True).words[0]).decode()


# The loop

LIBRARIES: dict[str, Callable[[], Library]] = {"xgrammar": XGrammar, "llguidance": Llguidance}
SINGLE = [bytes([byte]) for byte in range(256)]


@cache
def vocabulary(path: str) -> Bytes:
    return [bytes.fromhex(token) for token in json.loads(Path(path).read_text(encoding="utf-8"))]


def judged(library: Library, job: Job) -> dict[str, Any]:
    try:
        begin, said = library.compile(job, SINGLE)
        return {"taken": [_taken(begin(), text.encode()) for text in job["texts"]], "said": said}
    except Exception as error:  # whatever a library raises is its answer
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _taken(walk: Walk, text: bytes) -> bool:
    return all(walk.accept(byte) for byte in text) and walk.may_end()


def timed(library: Library, job: Job, tokens: Bytes) -> dict[str, Any]:
    """Milliseconds until the first mask, at best, and microseconds of a step, mask and token, in the middle; processor
    time, on one thread."""
    try:
        runs = [_timed_once(library, job, tokens)]
        while len(runs) < REPEATS and runs[0][0] < SLOW_MS:
            runs.append(_timed_once(library, job, tokens))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"first_ms": min(first for first, _ in runs), "step_us": min(step for _, step in runs)}


def _timed_once(library: Library, job: Job, tokens: Bytes) -> tuple[float, float]:
    began = time.process_time()
    begin, _ = library.compile(job, tokens)
    walk = begin()
    walk.mask()
    first = (time.process_time() - began) * 1e3
    steps = []
    for token in job["ids"]:
        began = time.process_time()
        walk.mask()
        if not walk.accept(token):
            raise ValueError(f"the token {token} is not let through")
        steps.append((time.process_time() - began) * 1e6)
    return first, statistics.median(steps)


def main(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    package = {"to_gbnf": "xllamacpp"}.get(name, name)
    library = LIBRARIES[name]() if name in LIBRARIES else None
    print(json.dumps({"version": f"{package} {version(package)}"}), file=answers, flush=True)
    if library is None:
        for line in sys.stdin:
            began = time.process_time()
            grammar = to_gbnf(json.loads(line)["grammar"])
            answer = {"grammar": grammar, "ms": (time.process_time() - began) * 1e3}
            print(json.dumps(answer), file=answers, flush=True)
        return
    for line in sys.stdin:
        job = json.loads(line)
        answer = timed(library, job, vocabulary(job["vocabulary"])) if "ids" in job else judged(library, job)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
