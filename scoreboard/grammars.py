"""The board of constraints: the same schemas through our dialects and through each library's own converter.

A case is a schema and a value. It is right if the library, held to the grammar, lets the value through just where the
schema takes it. If not, it was said (the schema was refused with a reason, a warning was printed or returned, our
constraint lists what it does not enforce) or it was silent. `python -m scoreboard constraints` runs it, and
`python -m scoreboard show ROW:CORPUS[:NAME[:NUMBER]]` prints the cases behind a figure. What is done is kept in
`build/scoreboard/constraints.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.constraints.grammar_engines import (
    EngineCrash,
    LlamaCppGrammar,
    Unparsable,
    llama_cpp_times,
    llama_cpp_tokens,
    llama_cpp_vocabulary,
)
from tests.constraints.schema_suite import VERSION
from unbraid.constraints.language import Json, OutputLanguage
from unbraid.constraints.printers import Printed
from unbraid.constraints.printers.ebnf import to_ebnf
from unbraid.constraints.printers.gbnf import to_gbnf
from unbraid.constraints.printers.lark import to_lark
from unbraid.constraints.printers.structural_tag import to_structural_tag
from unbraid.errors import InvalidSchema
from unbraid.schema.checks import check
from unbraid.schema.repair import repair

from .corpus import SEED
from .peers import PEERS, ROOT, Missing, interpreter
from .schemas import Case, suite, tools

FOLDER = ROOT / "build" / "scoreboard"
RESULTS = FOLDER / "constraints.jsonl"
CORPORA: dict[str, Callable[[], list[Case]]] = {"suite": suite, "tools": tools}
KINDS = 6
"""So many kinds of silent cases are named for each row."""
TIMED, TIMED_TOKENS = "ours", 48
"""Which tool definitions are timed, and with how many tokens."""


@dataclass(frozen=True)
class Row:
    """A way from a schema to masks."""

    name: str
    title: str
    enforcer: str
    syntax: str
    """As the adapter calls it."""
    printer: Callable[[OutputLanguage], Printed[Any]] | None = None
    """Ours; None for the library's own converter."""
    note: str = ""


ROWS = {
    row.name: row
    for row in (
        Row("unbraid-lark", "unbraid, Lark", "llguidance", "lark", to_lark),
        Row("llguidance", "llguidance's own", "llguidance", "json_schema", note="`LLMatcher.grammar_from_json_schema`"),
        Row("unbraid-tag", "unbraid, structural tag", "xgrammar", "structural_tag", to_structural_tag),
        Row("unbraid-ebnf", "unbraid, EBNF", "xgrammar", "grammar", to_ebnf),
        Row("xgrammar", "xgrammar's own", "xgrammar", "json_schema", note="`compile_json_schema` at its defaults"),
        Row(
            "xgrammar-open",
            "xgrammar's own, open",
            "xgrammar",
            "json_schema open",
            note="the same with `strict_mode=False`: by default it takes no property that a schema does not name",
        ),
        Row("unbraid-gbnf", "unbraid, GBNF", "llama.cpp", "gbnf", to_gbnf),
        Row(
            "llama.cpp",
            "llama.cpp's own",
            "llama.cpp",
            "own",
            note="`json_schema_to_grammar`, to GBNF; its README"
            " says that it takes no property that a schema does not name, and what it leaves out",
        ),
    )
}


# Processes


class Process:
    """An adapter that runs: a line of JSON for every question, and one for its answer. Also what it printed."""

    def __init__(self, python: Path, name: str) -> None:
        self._command = [str(python), "-m", "scoreboard.adapters.run_grammars", name]
        self._errors = (FOLDER / f"grammars-{name}.log").open("w+b")
        self.version = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Process:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        self._errors.close()

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, env=environment, cwd=ROOT
            )
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                raise Missing(f"{self._command[-1]} does not start: {(self._since(0).splitlines() or ['?'])[-1]}")
            self.version = json.loads(line)["version"]
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def ask(self, job: Any) -> dict[str, Any]:
        process, mark = self._start(), os.fstat(self._errors.fileno()).st_size
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(job), file=process.stdin, flush=True)
        line = process.stdout.readline()
        printed = self._since(mark)
        if not line:
            self._stop()
            what = printed.partition("what():")[2] or f"the process ended: {printed}"
            return {"error": " ".join(what.split())[:500]}
        answer: dict[str, Any] = json.loads(line)
        answer["said"] = "\n".join(part for part in (answer.get("said", ""), printed) if part)[:500]
        return answer

    def _since(self, mark: int) -> str:
        size = os.fstat(self._errors.fileno()).st_size - mark
        return os.pread(self._errors.fileno(), size, mark).decode(errors="replace").strip()


class Libraries:
    """The libraries that can be had, each in a process that starts when it is needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._processes: dict[str, Process] = {}

    def _process(self, name: str) -> Process:
        if name not in self._processes:
            FOLDER.mkdir(parents=True, exist_ok=True)
            python = interpreter(PEERS["vllm"]) if name == "xgrammar" else Path(sys.executable)
            self._processes[name] = self._stack.enter_context(Process(python, name))
        return self._processes[name]

    def version(self, library: str) -> str:
        return self._process("to_gbnf" if library == "llama.cpp" else library).version

    def judged(self, row: Row, grammar: str, texts: list[str]) -> dict[str, Any]:
        """Which texts are taken, or why the grammar is not, and what was said."""
        if row.enforcer != "llama.cpp":
            return self._process(row.enforcer).ask({"syntax": row.syntax, "grammar": grammar, "texts": texts})
        said, answer = "", {"grammar": grammar}
        if row.syntax == "own":
            answer = self._process("to_gbnf").ask({"grammar": grammar})
            said = answer.get("said", "")
        if "error" in answer:
            return answer
        try:
            verdicts = LlamaCppGrammar(answer["grammar"]).judge_all(texts)
        except (Unparsable, EngineCrash) as error:
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
        return {"taken": [verdict == "complete" for verdict in verdicts], "said": said}

    def timed(self, row: Row, grammar: str, ids: list[int]) -> tuple[float, float] | None:
        if row.enforcer != "llama.cpp":
            job = {"syntax": row.syntax, "grammar": grammar, "ids": ids, "vocabulary": str(vocabulary_file())}
            answer = self._process(row.enforcer).ask(job)
            return None if "error" in answer else (answer["first_ms"], answer["step_us"])
        converted = 0.0
        if row.syntax == "own":
            answer = self._process("to_gbnf").ask({"grammar": grammar})
            grammar, converted = answer["grammar"], answer["ms"]
        try:
            first, step = llama_cpp_times(grammar, ids)
        except (Unparsable, EngineCrash):
            return None
        return first + converted, step


@cache
def vocabulary_file() -> Path:
    path = FOLDER / "smollm2-tokens.json"
    if not path.exists():
        path.write_text(json.dumps([token.hex() for token in llama_cpp_vocabulary()]), encoding="utf-8")
    return path


# A run


def grammar_of(row: Row, schema: Any) -> tuple[str, str]:
    """What the library is given, and what we say of it."""
    if row.printer is None:
        return json.dumps(schema), ""
    repaired, _ = repair(schema, "parameters")
    check(repaired, "parameters")
    printed = row.printer(OutputLanguage(Json(repaired, "parameters"), {}))
    grammar = printed.grammar if isinstance(printed.grammar, str) else json.dumps(printed.grammar)
    return grammar, "; ".join(str(one) for one in printed.unenforced)


def judged(libraries: Libraries, row: Row, case: Case) -> dict[str, Any]:
    """What became of a case's values: `taken`, or an `error`; and what was `said`."""
    try:
        grammar, said = grammar_of(row, case.schema)
    except InvalidSchema as error:
        return {"error": f"InvalidSchema: {error}", "said": ""}
    texts = case.texts
    answer = libraries.judged(row, grammar, [one for several in texts for one in several])
    said = "\n".join(part for part in (said, answer.get("said", "")) if part)
    if "error" in answer:
        return {"error": answer["error"], "said": said}
    each = iter(answer["taken"])
    taken = [sum(next(each) for _ in several) > 0 for several in texts]
    refused = [at for at, (_, valid, _) in enumerate(case.values) if valid and not taken[at]]
    if refused:  # constants are often taken in one spelling only
        compact = [json.dumps(case.values[at][2], ensure_ascii=False, separators=(",", ":")) for at in refused]
        for at, also in zip(refused, libraries.judged(row, grammar, compact)["taken"], strict=True):
            taken[at] = also
    return {"taken": taken, "said": said}


def timed(libraries: Libraries, row: Row, case: Case) -> list[float] | None:
    """Milliseconds to the first mask, what we do included, and microseconds a step, for the longest value that was
    drawn, in an order that the grammar takes."""
    drawn = [several for several, (what, *_) in zip(case.texts, case.values, strict=True) if what == "as it is"]
    try:
        began = time.process_time()
        grammar, _ = grammar_of(row, case.schema)
        ours = (time.process_time() - began) * 1e3
    except InvalidSchema:
        return None
    for text in max(drawn, key=lambda several: len(several[0])):
        times = libraries.timed(row, grammar, llama_cpp_tokens(text)[:TIMED_TOKENS])
        if times is not None:
            return [round(times[0] + ours, 3), round(times[1], 1)]
    return None


def run() -> dict[str, Any]:
    """Run what is not done yet; the board."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = {line["cell"]: line for line in _lines()}
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack, RESULTS.open("a", encoding="utf-8") as out:
        libraries = Libraries(stack)
        for row in ROWS.values():
            began = time.monotonic()
            try:
                of_library = libraries.version(row.enforcer)
                lines = []
                for line in _of_row(libraries, row, of_library, kept):
                    lines.append(line)
                    if kept.get(line["cell"]) is not line:
                        out.write(json.dumps(line) + "\n")
                        out.flush()
                rows.append(_row(row, of_library, lines))
            except (Missing, OSError) as error:
                rows.append({"name": row.name, "title": row.title, "missing": str(error)})
                print(f"without {row.title}: {error}", file=sys.stderr)
            print(f"{time.monotonic() - began:6.0f} s  {row.title}", file=sys.stderr, flush=True)
    return {"suite": VERSION, "seed": SEED, "rows": rows}


def _lines() -> Iterator[dict[str, Any]]:
    if RESULTS.exists():
        for line in RESULTS.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _of_row(libraries: Libraries, row: Row, of_library: str, kept: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for corpus, cases in CORPORA.items():
        for case in cases():
            key = _key(row, of_library, case)
            line = kept.get(f"{row.name}:{corpus}:{case.name}", {})
            if line.get("key") != key:
                line = {"cell": f"{row.name}:{corpus}:{case.name}", "corpus": corpus, "kind": case.kind, "key": key}
                line |= judged(libraries, row, case) | {"valid": [valid for _, valid, _ in case.values]}
            if case.kind == TIMED and not line.keys() & {"error", "times"}:
                line = line | {"times": timed(libraries, row, case)}
            yield line


def _key(row: Row, of_library: str, case: Case) -> str:
    """What a result depends on; ours on all that we print."""
    try:
        grammar = grammar_of(row, case.schema)
    except InvalidSchema as error:
        grammar = (str(error), "")
    return hashlib.sha256(json.dumps([of_library, grammar, case.texts]).encode()).hexdigest()[:16]


# The board

Lines = list[dict[str, Any]]
OUTCOMES = {
    "right": "let through just where the schema takes the value",
    "refused": "the schema is refused with a reason",
    "valid-said": "a valid value cannot be written, with a warning",
    "valid-silent": "a valid value cannot be written, without a word",
    "invalid-said": "an invalid value can be written, and a warning or a list says so",
    "invalid-silent": "an invalid value can be written, without a word",
}


def outcomes(line: dict[str, Any]) -> list[str]:
    """What became of each value."""
    if "error" in line:
        return ["refused"] * len(line["valid"])
    how = "said" if line["said"] else "silent"
    return [
        "right" if taken == valid else f"{'valid' if valid else 'invalid'}-{how}"
        for taken, valid in zip(line["taken"], line["valid"], strict=True)
    ]


def _row(row: Row, of_library: str, lines: Lines) -> dict[str, Any]:
    times = [line["times"] for line in lines if line.get("times")]
    return {
        "name": row.name,
        "title": row.title,
        "library": of_library,
        "note": row.note,
        **{corpus: _counted(line for line in lines if line["corpus"] == corpus) for corpus in CORPORA},
        "first_ms": [round(one, 2) for one in _middle_and_worst([first for first, _ in times])],
        "timed": len(times),
        "step_us": [round(one, 1) for one in _middle_and_worst([step for _, step in times])],
        "silent": _silent(lines),
    }


def _middle_and_worst(values: list[float]) -> tuple[float, float]:
    return (statistics.median(values), max(values)) if values else (0.0, 0.0)


def _counted(lines: Iterable[dict[str, Any]]) -> dict[str, int]:
    counts = Counter(one for line in lines for one in outcomes(line))
    return {name: counts[name] for name in OUTCOMES if counts[name]}


def _silent(lines: Lines) -> dict[str, dict[str, int]]:
    """Most of the silent cases by what they are about: the suite's file, or the source of tools."""
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        for one in outcomes(line):
            if one.endswith("-silent"):
                kinds[f"{line['corpus']}:{line['kind']}"][one] += 1
    return {kind: dict(counts) for kind, counts in sorted(kinds.items(), key=lambda item: -item[1].total())[:KINDS]}


# A cell


def show(cell: str) -> int:
    """Print the cases behind a figure, as they come out now: all of one schema, or those that are not right of many."""
    name, corpus, *rest = cell.split(":")
    if corpus not in CORPORA:
        print(f"{cell}: the corpora are {', '.join(CORPORA)}", file=sys.stderr)
        return 2
    wanted = ":".join(rest)
    cases = [case for case in CORPORA[corpus]() if f"{case.name}:".startswith(f"{wanted}:" if wanted else "")]
    if not cases:
        print(f"{cell}: no such schema", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        libraries = Libraries(stack)
        for case in cases:
            _show(ROWS[name], case, judged(libraries, ROWS[name], case), every=len(cases) == 1)
    return 0


def _show(row: Row, case: Case, line: dict[str, Any], every: bool) -> None:
    results = outcomes(line | {"valid": [valid for _, valid, _ in case.values]})
    if not every and set(results) == {"right"}:
        return
    print(f"{row.name}:{case.corpus}:{case.name}  {case.title}\n{json.dumps(case.schema, ensure_ascii=False)}")
    for key in ("error", "said"):
        if line.get(key):
            print(f"  {key}: {line[key]}")
    for (what, valid, value), result in zip(case.values, results, strict=True):
        if every or result != "right":
            text = json.dumps(value, ensure_ascii=False)
            print(f"  {result}: {text[:300]}  ({'valid' if valid else 'invalid'}: {what})")
    print()
