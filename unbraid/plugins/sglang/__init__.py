"""The SGLang drop-in: SGLang's detectors of calls and reasoning with unbraid's parsing, and a parser of speech.

    import unbraid.plugins.sglang

    unbraid.plugins.sglang.install()  # then --tool-call-parser unbraid-hermes, --reasoning-parser unbraid-qwen3, …

From the command line, `python -m unbraid.plugins.sglang serve --tool-call-parser step_audio_2 …` is `sglang serve` with
the drop-in. See docs/sglang.md.

    hooks         what the drop-in relies on in SGLang
    detectors     SGLang's detectors with our parsing
    registration  how they get into SGLang
    text_streams  one response as SGLang's two kinds of detectors take it apart
    audio_parser  speech taken out of token ids
    command       the command `sglang` with the drop-in

Only `detectors` and `registration` import SGLang.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...errors import UnbraidError
from ..hooks import broken_hooks
from ..later import when_imported
from .audio_parser import AudioParser, AudioParserManager, StepAudio2AudioParser, TtsContent
from .hooks import HOOKS, SUPPORTED

if TYPE_CHECKING:
    from .detectors import StepAudio2Detector, StepAudio2ReasoningDetector
    from .registration import Installed

_log = logging.getLogger(__name__)

REPLACE = "UNBRAID_SGLANG_REPLACE"
"""The environment variable that asks to replace SGLang's own detectors. Processes that SGLang starts inherit it."""

_LAZY = ("StepAudio2Detector", "StepAudio2ReasoningDetector")
"""Names that need SGLang; they are imported when they are used."""

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
    """SGLang is not installed, or this version does not fit; the message says which."""


def install(replace: bool | None = None) -> Installed:
    """Register unbraid's detectors with SGLang, in this process: `unbraid-NAME` for every format and for every name
    that SGLang has, and for Step-Audio 2 the tool-call parser `step_audio_2` and the reasoning parser `step-audio2`.

    replace: also replace SGLang's own detectors of the same name (`hermes`, `qwen25`, `mistral`, `qwen3`, …). The
        default is taken from the variable UNBRAID_SGLANG_REPLACE.
    """
    if replace is None:
        replace = os.environ.get(REPLACE, "").lower() not in ("", "0", "false", "no")
    registration = _module("registration")
    when_imported("sglang.srt.server_args", registration.tell_the_server)
    installed: Installed = registration.register(replace)
    return installed


def load() -> None:
    """What SGLang calls by itself (an entry point of `sglang.srt.plugins`), for everyone who has unbraid installed. If
    this SGLang does not fit, the log says so and SGLang goes on without the drop-in."""
    try:
        install()
    except SGLangMissing as problem:
        _log.error("%s", problem)


def _module(name: str) -> ModuleType:
    """One of the modules that import SGLang."""
    if "sglang" not in sys.modules and importlib.util.find_spec("sglang") is None:
        raise SGLangMissing(f"SGLang is not installed: pip install '{SUPPORTED}'")
    installed = SUPPORTED.installed() or "of an unknown version"
    problems = broken_hooks(HOOKS)
    if problems:
        raise SGLangMissing(
            f"unbraid's drop-in is made for {SUPPORTED}, and this SGLang ({installed}) does not fit: "
            f"{'; '.join(problems)}. Install an SGLang that it is made for, or what is missing"
        )
    if not SUPPORTED.includes(installed):
        _log.warning("unbraid's drop-in was tested with %s; SGLang %s seems to fit", SUPPORTED, installed)
    return importlib.import_module(f"{__name__}.{name}")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(_module("detectors"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
