"""Rooms and maps: a module is worth opening, and a package says what is in it.

`test_imports.py` bounds how many modules a folder may have. The test here is its counterweight: a module that only one
module of its own folder imports could stand in that module, and needs a reason to stand alone.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

from ..support.places import ROOT
from .modules import HOME, Module, imports, modules

ALONE: Mapping[str, str] = {
    "unbraid.cli.*": "a command is a module of its name",
    "unbraid.speech.synthesis.east_asian": "two scripts with readers of their own, which are optional",
    "unbraid.speech.speakers.torch_files": "PyTorch's files, of any model",
    "unbraid.cli.transcribe.live": "another way to run the command, with a source of sound of its own",
    "unbraid.constraints.builder": "what a turn may be; with `Constraint` it is too long for a module",
    "unbraid.constraints.calls": "what a call may be, apart from what stands around it",
    "unbraid.constraints.grammars.lark": "Lark's notation, apart from what its rules mean",
    "unbraid.constraints.masks": "the one module that needs llguidance",
    "unbraid.constraints.notations.*": "one notation each, with the names of core/notations",
    "unbraid.plugins.sglang.audio_parser": "speech, which works without SGLang",
    "unbraid.plugins.sglang.registration": "imports SGLang, which the package must not",
    "unbraid.plugins.vllm.hooks": "the table to change with a new vLLM",
    "unbraid.plugins.vllm.parsers": "vLLM's two interfaces; the combined parser is a third",
    "unbraid.plugins.vllm.registration": "the names, which must not import vLLM",
    "unbraid.schema.intersection": "a job of its own; with the normal form it is too long for a module",
    "unbraid.schema.references": "addresses and names, which few schemas have; no mistake that `repair` mends",
    "unbraid.core.compiler.calls": "one of the compiler's two jobs; both together are too long for a module",
    "unbraid.core.notations.json_call": "one notation, as its neighbours are",
    "unbraid.datasets.row_groups": "Parquet's footer, byte by byte; nothing else needs to know it",
    "unbraid.engines.*": "one engine each; the table imports it",
    "unbraid.engines.http.connections": "how connections are opened and shared, apart from requests and errors",
    "unbraid.engines.llama_cpp.model": "llama.cpp's library, apart from the engine that uses it",
    "unbraid.engines.llama_cpp.reader": "one reader; both with the engine are too long for a module",
    "unbraid.engines.routing.*": "the choice of a replica and its tries are two jobs",
    "unbraid.formats.*": "one way to write calls each; the package registers them",
    "unbraid.ray.engine": "the engine that the API sees; the application deploys it",
    "unbraid.templates.prompt.beginnings": "JSON that broke off, which the builder need not know of",
    "unbraid.rollouts.extension": "the next prompt after a turn, one of the renderer's three jobs",
    "unbraid.rollouts.stand_ins": "what a template may see of messages; nothing else knows of its switches",
    "unbraid.rollouts.unknown_past": "ids alone, apart from prompts that know their messages",
    "unbraid.speech.audio.sources": "untrusted files, before FFmpeg sees them",
    "unbraid.speech.live.agreement": "which words are certain: an algorithm of its own, without sound or clocks",
    "unbraid.speech.onnx.protobuf": "a wire format; nothing in it is ONNX's",
    "unbraid.speech.segments": "from events to text; with the attempt it is too long for a module",
    "unbraid.speech.synthesis.phonemes": "tables of letters, and a C library",
    "unbraid.speech.synthesis.windows": "joins any sounds; the model, its files and its voices are Kokoro's",
    "unbraid.speech.whisper.*": "the model, its decoder and the listener are a layer each",
    "unbraid.speech.words": "when words were said, by the sound alone",
    "unbraid.templates.detection.*": "the stages of a detection, each of which the next one imports",
    "unbraid.templates.prompt.prepared": "one template; the builder has two, and all else of a request",
    "unbraid.templates.prompt.bridges": "a job of its own; with the builder it is too long for a module",
    "unbraid.templates.sandbox.cost_checks": "a job of its own; with the environment it is too long for a module",
    "unbraid.tokens.*": "one tokenizer library each; the package chooses",
    "unbraid.verify.*": "asking, reading, checking, probing, blaming and reporting are a job each",
    "unbraid.server.audio.transcription_reply": "imports the packages of speech, which its importer must not",
    "unbraid.server.messages.history": "the conversation; with the fields around it, too long for a module",
    "unbraid.server.planning.pool": "the processes; the planner decides what goes to them",
    "unbraid.server.planning.worker": "what runs in a process of its own, which imports little else",
    "unbraid.server.playground.*": "views are imported when they are first asked for: a browser starts faster",
    "unbraid.server.realtime.*": "the connection, the session and one response live for different times",
    "unbraid.server.running.supervisor": "the parent process of the workers; a server without workers needs none of it",
}
"""Modules that only one module of their folder imports, or folders of such modules, and why they stand alone."""

LISTED = re.compile(r"^ {4}(\w+)(?:\.py|/)(?:\s|$)|^\| `(\w+)[\w.]*` \|", re.MULTILINE)
"""A module or package in the map of a package: `    name.py  what it is for`, or a row of a table."""


def importers() -> Mapping[str, set[str]]:
    """Which modules import each module."""
    result: dict[str, set[str]] = defaultdict(set)
    for one in imports():
        result[one.target].add(one.source)
    return result


def home(module: Module) -> str:
    """The folder that a module stands in, as a dotted name."""
    return module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]


def lonely() -> dict[str, str]:
    """Each module with exactly one importer, which stands in the same folder; and that importer."""
    return {
        name: source
        for name, sources in importers().items()
        if len(sources) == 1 and modules()[name].path.name != "__init__.py" and home(modules()[name]) != HOME
        for source in sources
        if home(modules()[source]) == home(modules()[name])
    }


def reason(name: str) -> str | None:
    return ALONE.get(name) or ALONE.get(name.rpartition(".")[0] + ".*")


def test_a_module_with_one_importer_beside_it_has_a_reason() -> None:
    wrong = [f"{name} is imported by {source} alone" for name, source in sorted(lonely().items()) if not reason(name)]
    assert not wrong, "\n".join(["merge each, or give its reason in ALONE:", *wrong])


def test_no_reason_is_left_over() -> None:
    used = {key for name in lonely() for key in (name, name.rpartition(".")[0] + ".*")}
    assert not set(ALONE) - used


def contents(package: Module) -> set[str]:
    """The modules and packages that stand in a package's folder."""
    folder = package.path.parent
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def test_the_map_of_a_package_is_true() -> None:
    """The docstring of a package names each of its modules and packages, and nothing else."""
    wrong = []
    for module in modules().values():
        if module.path.name == "__init__.py" and module.name != HOME and (there := contents(module)):
            docstring = ast.get_docstring(module.tree) or ""
            listed = {first or second for first, second in LISTED.findall(docstring)}
            wrong += [f"{module.file} does not name {name}" for name in sorted(there - listed)]
            wrong += [f"{module.file} names {name}, which is not there" for name in sorted(listed - there)]
    assert not wrong, "\n".join(["", *wrong])


def test_no_module_stands_too_deep() -> None:
    deep = [module.file for module in modules().values() if len(module.path.parts) - len(ROOT.parts) > 4]
    assert not deep, "\n".join(["at most three folders above a module:", *deep])
