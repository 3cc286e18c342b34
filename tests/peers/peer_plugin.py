"""A pytest plug-in for the engines' own tests: tokenizers without a hub, and our parsers in the place of theirs.

It runs inside the engines' test suites (`run.py`), whose package is called `tests` as well. So it is imported by its
own name, and imports nothing of our tests.

The suites load tokenizers from a hub. Here all of them are one tokenizer, with the markers of all formats as tokens.
Both runs have the same, so a test that this breaks fails in both and says nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

OURS = "UNBRAID_PEER_OURS"
"""Set in the run with our parsers."""
TOKENIZER = "UNBRAID_PEER_TOKENIZER"
"""The tokenizer.json to use."""
SETTINGS = "UNBRAID_PEER_SETTINGS"
"""The tests to run, each with what an operator sets (`VARIABLE=word`), as JSON; all tests if it is empty."""
WITHOUT_MARKERS = ("gpt2", "opt-125m")
"""Models that know no markers; the suites take them where ids do not matter."""

NOT_NEEDED = ("datasets", "torchvision", "torchvision.transforms", "torchvision.transforms.functional")
"""What SGLang's tests import for its models."""


def texts(node: object) -> set[str]:
    """All text in a grammar."""
    if isinstance(node, str):
        return {node}
    if isinstance(node, tuple):
        return {text for item in node for text in texts(item)}
    if is_dataclass(node) and not isinstance(node, type):
        return {text for field in fields(node) for text in texts(getattr(node, field.name))}
    return set()


@cache
def tokenizer(with_markers: bool) -> Any:
    """The stand-in."""
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_file=os.environ[TOKENIZER], eos_token="<|im_end|>")
    if with_markers:
        from unbraid import all_formats

        written = " ".join(text for format in all_formats() for text in texts(format))
        marks = set(re.findall(r"<[^<>\s=\"]+>|\[/?[A-Z_]{3,}\]", written))
        made.add_tokens(sorted(mark for mark in marks if re.match(r"<[\w/]", mark)))
        made.add_tokens(sorted(mark for mark in marks if not re.match(r"<[\w/]", mark)), special_tokens=True)
    vocabulary = made.get_vocab()
    made.get_vocab = lambda: vocabulary  # most parsers ask for it, and to make it takes longer than most tests
    return made


def load(name: object = "", *_: object, **options: Any) -> Any:
    """In the place of all functions that load a tokenizer."""
    name = options.get("tokenizer_name", options.get("pretrained_model_name_or_path", name))
    return tokenizer(not any(part in str(name) for part in WITHOUT_MARKERS))


def replace_vllm() -> None:
    """Our parsers under vLLM's names, and in the place of the classes that its tests import."""
    os.environ["UNBRAID_VLLM_REPLACE"] = "1"
    plugin = importlib.import_module("unbraid.plugins.vllm")
    plugin.register(required=True)
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    found = []
    for manager, get in (
        (ToolParserManager, ToolParserManager.get_tool_parser),
        (ReasoningParserManager, ReasoningParserManager.get_reasoning_parser),
    ):
        found += [(place, get(name)) for name, place in manager.lazy_parsers.theirs.items()]
    importlib.import_module("vllm.parser.engine.registered_adapters")
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("vllm.")]
    for (module, attribute), ours in found:
        theirs = getattr(importlib.import_module(module), attribute)
        if ours.__module__.startswith("unbraid."):
            for home in modules:
                for name in [name for name, value in vars(home).items() if value is theirs]:
                    setattr(home, name, ours)


def replace_sglang() -> None:
    """Our detectors under SGLang's names, and in the place of the classes that its tests import."""
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    registries = (FunctionCallParser.ToolCallParserEnum, ReasoningParser.DetectorMap)
    theirs = [dict(registry) for registry in registries]
    importlib.import_module("unbraid.plugins.sglang").install(replace=True)
    for registry, before in zip(registries, theirs, strict=True):
        # A class may have several names, and each has a detector of ours: the one that is named like it stands for it.
        for name in sorted(before, key=lambda name: not before[name].__name__.lower().startswith(f"{name}detector")):
            detector = before[name]
            if registry[name] is not detector:
                for module in (detector.__module__, *HOMES):
                    home, own = importlib.import_module(module), str(detector.__name__)
                    if getattr(home, own, None) is detector:
                        setattr(home, own, registry[name])


HOMES = ("sglang.srt.function_call.function_call_parser", "sglang.srt.parser.reasoning_parser")
"""The modules of SGLang with the names of all detectors."""


class Stub(ModuleType):
    """Stands for a module that the suites name and do not use."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def add_to_vllm() -> None:
    """Our parsers under their own names, beside vLLM's."""
    importlib.import_module("unbraid.plugins.vllm").register(required=True)


REPLACE = {"vllm": replace_vllm, "vllm-samples": add_to_vllm, "sglang": replace_sglang}


def pytest_configure() -> None:
    suite = os.environ["UNBRAID_PEER_SUITE"]
    import transformers

    if suite == "sglang":
        for name in NOT_NEEDED:
            if find_spec(name.partition(".")[0]) is None or name.partition(".")[0] in sys.modules:
                sys.modules.setdefault(name, Stub(name))

    transformers.AutoTokenizer.from_pretrained = load
    if suite != "sglang":
        for name in ("vllm.tokenizers", "vllm.tokenizers.registry"):
            importlib.import_module(name).get_tokenizer = load  # type: ignore[attr-defined]
    if os.environ.get(OURS):
        REPLACE[suite]()


def _setting(item: Any) -> str:
    """What an operator sets for a test, by its name in the reports; "" for a test that is not named."""
    path, _, rest = item.nodeid.partition("::")
    *classes, name = rest.split("::")
    place = ".".join((path.removesuffix(".py").replace("/", "."), *classes))
    settings = json.loads(os.environ.get(SETTINGS) or "{}")
    return str(settings.get(f"{place}::{name}") or settings.get(f"{place}::{name.partition('[')[0]}") or "")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if json.loads(os.environ.get(SETTINGS) or "{}"):
        items[:] = [item for item in items if _setting(item)]


def pytest_runtest_setup(item: Any) -> None:
    """The settings are read for every response."""
    name, _, word = _setting(item).partition("=")
    if name:
        os.environ[name] = word


def pytest_runtest_teardown(item: Any) -> None:
    name = _setting(item).partition("=")[0]
    if name:
        del os.environ[name]
