"""Threads that work for requests: each place that starts one says why no request leaves it behind.

A thread cannot be cancelled. What it is given must end by itself soon, or look whether somebody still waits. So every
place that hands work to a thread is in this table, with what bounds the work. A new one is a decision: make it here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from .modules import Module, modules

START = "while the server starts or ends, not for a request"
READING = "reads or writes what is bounded by the largest body, once"
STEPS = "in steps, each of which is bounded; who leaves has no further one"

BOUNDED: Mapping[str, str] = {
    "unbraid.cli.transcribe._all": "the headers of the files that the command names",
    "unbraid.cli.transcribe.live.sound": "one block of a file",
    "unbraid.datasets.job": "processes of a job on files, which serves no requests",
    "unbraid.engines.base": "the default of `costly_work`, where no server bounds it: the library's own user waits",
    "unbraid.engines.http.address._send": READING,
    "unbraid.engines.http.sources": "reads a file of URLs, for no request",
    "unbraid.engines.llama_cpp.embedded.__init__": "a thread for each request; its callback looks at `aborted`",
    "unbraid.engines.llama_cpp.embedded._start": "the same",
    "unbraid.engines.llama_cpp.embedded.close": START,
    "unbraid.engines.server.generate": READING,
    "unbraid.engines.tokenizers.remote_tokenizer": START,
    "unbraid.engines.vllm.local._prompt": "decodes the recordings of one message, which are bounded by the body",
    "unbraid.engines.vllm.local.close": START,
    "unbraid.rollouts.renderer": "processes of those who train, which serve no requests",
    "unbraid.server.api.replies.unhurried": READING,
    "unbraid.server.app.lifespan": START,
    "unbraid.server.audio.speech._parts": "one sentence",
    "unbraid.server.generation.choice._end": "counts the tokens of one output, once",
    "unbraid.server.generation.choice._sound": "the codes of one piece",
    "unbraid.server.http._read": READING,
    "unbraid.server.loading.engine": START,
    "unbraid.server.loading.service": START,
    "unbraid.server.observing.otel": START,
    "unbraid.server.planning.planner": "within an allowance of CPU time; `Meter.cancel` when the client leaves",
    "unbraid.server.planning.pool": "waits for a process, which is killed when the client leaves",
    "unbraid.server.realtime.input_audio._events": "the sound of one event",
    "unbraid.server.running.supervisor": "one thread of a worker process, for its whole life",
    "unbraid.server.service": "the store: one statement on a file, within SQLite's own timeout",
    "unbraid.server.tokens.derender": READING,
    "unbraid.speech.decoding.worker": "the model's own thread; a job that nobody waits for is aborted between steps",
    "unbraid.speech.engines.remote": "one chunk of a recording",
    "unbraid.speech.live.lines._feed": "the sound of a tenth of a second, or of a block of a file",
    "unbraid.speech.loading": START,
    "unbraid.speech.synthesis.kokoro.speak": "cuts one text, of at most `--max-speech` characters",
    "unbraid.speech.synthesis.sentences": "one sentence at a time; what waits for its turn is cancelled",
    "unbraid.speech.transcriber": STEPS,
}
"""Where threads are started: a module, or a function of it, and what bounds the work."""

STARTS = ("to_thread", "run_in_executor", "ThreadPoolExecutor", "Thread", "submit")


def places() -> Iterator[tuple[str, str, int]]:
    """Each use of a name that starts a thread: its module, the function that it stands in, its line."""
    for module in modules().values():
        yield from _uses(module, module.tree, "")


def _uses(module: Module, node: ast.AST, function: str) -> Iterator[tuple[str, str, int]]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Attribute | ast.Name):
            name = child.attr if isinstance(child, ast.Attribute) else child.id
            if name in STARTS:
                yield module.name, inner, child.lineno
        yield from _uses(module, child, inner)


def keys(module: str, function: str) -> set[str]:
    return {module, f"{module}.{function}"}


def test_every_thread_says_what_bounds_it() -> None:
    wrong = [
        f"{module}:{line}: {function} starts a thread"
        for module, function, line in places()
        if not keys(module, function) & set(BOUNDED)
    ]
    assert not wrong, "\n".join(["bound the work, then say by what in BOUNDED:", *wrong])


def test_no_bound_is_left_over() -> None:
    used = {key for module, function, _ in places() for key in keys(module, function)}
    assert not set(BOUNDED) - used
