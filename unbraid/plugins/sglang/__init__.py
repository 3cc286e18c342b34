"""unbraid inside of SGLang: its detectors of calls and reasoning, parsing as unbraid does, and speech.

import unbraid.plugins.sglang

unbraid.plugins.sglang.install()  # then --tool-call-parser unbraid-hermes, --reasoning-parser unbraid-qwen3, …

Or, from the command line: `python -m unbraid.plugins.sglang serve --tool-call-parser step_audio_2 …` is `sglang serve`
with all of it. docs/sglang.md has the rest.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unbraid.errors import UnbraidError

from .audio_parser import AudioParser, AudioParserManager, StepAudio2AudioParser, TtsContent

if TYPE_CHECKING:
    from .detectors import Installed, StepAudio2Detector, StepAudio2ReasoningDetector

TESTED = "0.5.23"
REPLACE = "UNBRAID_SGLANG_REPLACE"
"""The variable that says whether SGLang's own detectors are replaced; the processes that SGLang starts have it too."""

_LAZY = ("Installed", "StepAudio2Detector", "StepAudio2ReasoningDetector")
"""What can be had only where SGLang is."""

__all__ = [
    "AudioParser",
    "AudioParserManager",
    "SGLangMissing",
    "StepAudio2AudioParser",
    "StepAudio2Detector",
    "StepAudio2ReasoningDetector",
    "TtsContent",
    "install",
]


class SGLangMissing(UnbraidError, ImportError):
    """SGLang is not installed here, or is not what this was written for; the message says which."""


def install(replace: bool | None = None) -> Installed:
    """Make SGLang know unbraid's detectors, in this process: for every format `unbraid-NAME`, and for Step-Audio 2
    the tool-call parser `step_audio_2` and the reasoning parser `step-audio2`.

    replace: also put them in the place of SGLang's own of the same name (`hermes`, `qwen25`, `mistral`, `qwen3`, …).
        Where it is not said, the variable UNBRAID_SGLANG_REPLACE says it.
    """
    if replace is None:
        replace = os.environ.get(REPLACE, "").lower() not in ("", "0", "false", "no")
    installed: Installed = _detectors().register(replace)
    return installed


def _detectors() -> ModuleType:
    if "sglang" not in sys.modules and importlib.util.find_spec("sglang") is None:
        raise SGLangMissing(f"SGLang is not installed: pip install sglang (tested with {TESTED})")
    try:
        detectors = importlib.import_module(f"{__name__}.detectors")
    except ImportError as error:
        raise SGLangMissing(
            f"SGLang's parsers cannot be imported: {error}. Tested is {TESTED}; install that, or what is missing"
        ) from error
    for of, needed in (
        (detectors.FunctionCallParser, ("ToolCallParserEnum", "parse_stream_chunk", "parse_stream_end")),
        (detectors.ReasoningParser, ("DetectorMap", "parse_stream_chunk", "parse_stream_end")),
    ):
        missing = [name for name in needed if not hasattr(of, name)]
        if missing:
            raise SGLangMissing(f"SGLang's {of.__name__} has no {', '.join(missing)}: use SGLang {TESTED} or later")
    return detectors


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(_detectors(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """SGLang's own command, with our detectors."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--replace"]:
        os.environ[REPLACE] = "1"
        arguments = arguments[1:]
    installed = install()
    if not arguments:
        print("usage: python -m unbraid.plugins.sglang [--replace] serve …  (what follows is for the command `sglang`)")
        print("--tool-call-parser:", ", ".join(installed.tool_call_parsers))
        print("--reasoning-parser:", ", ".join(installed.reasoning_parsers))
        return
    sys.argv = ["sglang", *arguments]
    importlib.import_module("sglang.cli.main").main()
